"""Sentences in other European languages, written for these tests: line i of each language says the same."""

SENTENCES = {
    "de": """Gestern war das Wetter so schlecht, dass niemand das Haus verlassen wollte.
Meine Schwester wohnt mit ihren zwei Kindern in einem kleinen Dorf am Fluss.
Kannst du mir sagen, wo der Schlüssel für die blaue Tür liegt?
Der alte Lehrer las den Kindern jeden Abend eine Geschichte vor.
Wir haben das Brot auf den Tisch gestellt und auf die Gäste gewartet.
Wenn es morgen regnet, fahren wir mit dem Zug in die Stadt.
Er hat seinen Mantel im Büro vergessen und ist noch einmal zurückgegangen.
Die Fenster sind offen, aber im Zimmer ist es immer noch zu warm.
Das ist die schönste Karte, die ich je bekommen habe.
Ohne deine Hilfe hätten wir diese Arbeit nicht beendet.""",
    "fr": """Hier, il faisait si mauvais que personne ne voulait quitter la maison.
Ma sœur habite avec ses deux enfants dans un petit village au bord de la rivière.
Peux-tu me dire où se trouve la clé de la porte bleue ?
Le vieux maître lisait chaque soir une histoire aux enfants.
Nous avons mis le pain sur la table et attendu les invités.
S'il pleut demain, nous irons en ville par le train.
Il a oublié son manteau au bureau et il est retourné le chercher.
Les fenêtres sont ouvertes, mais il fait encore trop chaud dans la chambre.
C'est la plus belle carte que j'aie jamais reçue.
Sans ton aide, nous n'aurions pas terminé ce travail.""",
    "pt": """Ontem o tempo estava tão mau que ninguém queria sair de casa.
A minha irmã mora com os seus dois filhos numa pequena aldeia à beira do rio.
Podes dizer-me onde está a chave da porta azul?
O velho professor lia todas as noites uma história às crianças.
Pusemos o pão na mesa e esperámos pelos convidados.
Se chover amanhã, vamos de comboio para a cidade.
Ele esqueceu-se do casaco no escritório e voltou para o buscar.
As janelas estão abertas, mas ainda faz muito calor no quarto.
Este é o postal mais bonito que eu já recebi.
Sem a tua ajuda não teríamos acabado este trabalho.""",
    "ca": """Ahir feia tan mal temps que ningú no volia sortir de casa.
La meva germana viu amb els seus dos fills en un poble petit a la vora del riu.
Em pots dir on és la clau de la porta blava?
El vell mestre llegia cada vespre una història als nens.
Vam posar el pa a la taula i vam esperar els convidats.
Si demà plou, anirem a la ciutat amb el tren.
Es va deixar l'abric al despatx i hi va tornar per agafar-lo.
Les finestres són obertes, però encara fa massa calor a l'habitació.
És la postal més bonica que he rebut mai.
Sense la teva ajuda no hauríem acabat aquesta feina.""",
    "it": """Ieri il tempo era così brutto che nessuno voleva uscire di casa.
Mia sorella abita con i suoi due figli in un piccolo paese lungo il fiume.
Puoi dirmi dove si trova la chiave della porta blu?
Il vecchio maestro leggeva ogni sera una storia ai bambini.
Abbiamo messo il pane sul tavolo e aspettato gli ospiti.
Se domani piove, andremo in città con il treno.
Ha dimenticato il cappotto in ufficio ed è tornato a prenderlo.
Le finestre sono aperte, ma nella stanza fa ancora troppo caldo.
È la cartolina più bella che io abbia mai ricevuto.
Senza il tuo aiuto non avremmo finito questo lavoro.""",
    "nl": """Gisteren was het weer zo slecht dat niemand het huis uit wilde.
Mijn zus woont met haar twee kinderen in een klein dorp aan de rivier.
Kun je me zeggen waar de sleutel van de blauwe deur ligt?
De oude meester las de kinderen elke avond een verhaal voor.
We hebben het brood op tafel gezet en op de gasten gewacht.
Als het morgen regent, gaan we met de trein naar de stad.
Hij is zijn jas op kantoor vergeten en is nog eens teruggegaan.
De ramen staan open, maar het is in de kamer nog altijd te warm.
Dit is de mooiste kaart die ik ooit heb gekregen.
Zonder jouw hulp hadden we dit werk niet afgemaakt.""",
}
