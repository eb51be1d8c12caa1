"""Sentences in other European languages, written for these tests: line i of each language says the same."""

SENTENCES = {
    "de": """Gestern war das Wetter so schlecht, dass niemand das Haus verlassen wollte.
Meine Schwester wohnt mit ihren zwei Kindern in einem kleinen Dorf am Fluss.
Kannst du mir sagen, wo der Schlüssel für die blaue Tür liegt?
Der alte Lehrer las den Kindern jeden Abend eine Geschichte vor.""",
    "fr": """Hier, il faisait si mauvais que personne ne voulait quitter la maison.
Ma sœur habite avec ses deux enfants dans un petit village au bord de la rivière.
Peux-tu me dire où se trouve la clé de la porte bleue ?
Le vieux maître lisait chaque soir une histoire aux enfants.""",
    "pt": """Ontem o tempo estava tão mau que ninguém queria sair de casa.
A minha irmã mora com os seus dois filhos numa pequena aldeia à beira do rio.
Podes dizer-me onde está a chave da porta azul?
O velho professor lia todas as noites uma história às crianças.""",
    "ca": """Ahir feia tan mal temps que ningú no volia sortir de casa.
La meva germana viu amb els seus dos fills en un poble petit a la vora del riu.
Em pots dir on és la clau de la porta blava?
El vell mestre llegia cada vespre una història als nens.""",
    "it": """Ieri il tempo era così brutto che nessuno voleva uscire di casa.
Mia sorella abita con i suoi due figli in un piccolo paese lungo il fiume.
Puoi dirmi dove si trova la chiave della porta blu?
Il vecchio maestro leggeva ogni sera una storia ai bambini.""",
    "nl": """Gisteren was het weer zo slecht dat niemand het huis uit wilde.
Mijn zus woont met haar twee kinderen in een klein dorp aan de rivier.
Kun je me zeggen waar de sleutel van de blauwe deur ligt?
De oude meester las de kinderen elke avond een verhaal voor.""",
}
