import pytest
from grammar.agreement import Agreement, Tense
from grammar.phrases import Nominals, possessive
from grammar.reading import load_lexicon
from grammar.spanish import Spanish, contract

LEXICON = load_lexicon()
ME, YOU, SHE, WE, THEY = (
    Agreement(1),
    Agreement(2),
    Agreement(3, gender="f"),
    Agreement(1, plural=True),
    Agreement(3, plural=True),
)
BOY, GIRLS = Agreement(3), Agreement(3, plural=True, gender="f")


@pytest.fixture
def spanish() -> Spanish:
    return LEXICON.spanish


@pytest.mark.parametrize(
    ("verb", "tense", "forms"),
    [
        ("hablar", "present", "hablo hablas habla hablamos hablan"),
        ("comer", "present", "como comes come comemos comen"),
        ("vivir", "present", "vivo vives vive vivimos viven"),
        ("ser", "present", "soy eres es somos son"),
        ("estar", "present", "estoy estás está estamos están"),
        ("ir", "present", "voy vas va vamos van"),
        ("tener", "present", "tengo tienes tiene tenemos tienen"),
        ("hacer", "present", "hago haces hace hacemos hacen"),
        ("dormir", "present", "duermo duermes duerme dormimos duermen"),
        ("jugar", "present", "juego juegas juega jugamos juegan"),
        ("pedir", "present", "pido pides pide pedimos piden"),
        ("seguir", "present", "sigo sigues sigue seguimos siguen"),
        ("elegir", "present", "elijo eliges elige elegimos eligen"),
        ("conocer", "present", "conozco conoces conoce conocemos conocen"),
        ("traducir", "present", "traduzco traduces traduce traducimos traducen"),
        ("construir", "present", "construyo construyes construye construimos construyen"),
        ("enviar", "present", "envío envías envía enviamos envían"),
        ("oír", "present", "oigo oyes oye oímos oyen"),
        ("almorzar", "present", "almuerzo almuerzas almuerza almorzamos almuerzan"),
        ("encontrar", "present", "encuentro encuentras encuentra encontramos encuentran"),
        ("hablar", "preterite", "hablé hablaste habló hablamos hablaron"),
        ("comer", "preterite", "comí comiste comió comimos comieron"),
        ("buscar", "preterite", "busqué buscaste buscó buscamos buscaron"),
        ("llegar", "preterite", "llegué llegaste llegó llegamos llegaron"),
        ("abrazar", "preterite", "abracé abrazaste abrazó abrazamos abrazaron"),
        ("leer", "preterite", "leí leíste leyó leímos leyeron"),
        ("oír", "preterite", "oí oíste oyó oímos oyeron"),
        ("construir", "preterite", "construí construiste construyó construimos construyeron"),
        ("dormir", "preterite", "dormí dormiste durmió dormimos durmieron"),
        ("seguir", "preterite", "seguí seguiste siguió seguimos siguieron"),
        ("hacer", "preterite", "hice hiciste hizo hicimos hicieron"),
        ("tener", "preterite", "tuve tuviste tuvo tuvimos tuvieron"),
        ("traer", "preterite", "traje trajiste trajo trajimos trajeron"),
        ("traducir", "preterite", "traduje tradujiste tradujo tradujimos tradujeron"),
        ("dar", "preterite", "di diste dio dimos dieron"),
        ("ir", "preterite", "fui fuiste fue fuimos fueron"),
        ("hablar", "imperfect", "hablaba hablabas hablaba hablábamos hablaban"),
        ("ver", "imperfect", "veía veías veía veíamos veían"),
        ("ser", "imperfect", "era eras era éramos eran"),
        ("tener", "imperfect", "tenía tenías tenía teníamos tenían"),
        ("beber", "future", "beberé beberás beberá beberemos beberán"),
        ("salir", "future", "saldré saldrás saldrá saldremos saldrán"),
        ("oír", "future", "oiré oirás oirá oiremos oirán"),
        ("deber", "conditional", "debería deberías debería deberíamos deberían"),
    ],
)
def test_spanish_verbs_conjugate(spanish, verb, tense, forms):
    assert " ".join(spanish.finite(verb, tense, form) for form in range(5)) == forms


@pytest.mark.parametrize(
    ("verb", "gerund", "participle", "command", "forbid"),
    [
        ("hablar", "hablando", "hablado", "habla", "hables"),
        ("comer", "comiendo", "comido", "come", "comas"),
        ("leer", "leyendo", "leído", "lee", "leas"),
        ("dormir", "durmiendo", "dormido", "duerme", "duermas"),
        ("pedir", "pidiendo", "pedido", "pide", "pidas"),
        ("seguir", "siguiendo", "seguido", "sigue", "sigas"),
        ("construir", "construyendo", "construido", "construye", "construyas"),
        ("ir", "yendo", "ido", "ve", "vayas"),
        ("hacer", "haciendo", "hecho", "haz", "hagas"),
        ("poner", "poniendo", "puesto", "pon", "pongas"),
        ("escribir", "escribiendo", "escrito", "escribe", "escribas"),
        ("romper", "rompiendo", "roto", "rompe", "rompas"),
        ("ver", "viendo", "visto", "ve", "veas"),
        ("traer", "trayendo", "traído", "trae", "traigas"),
        ("oír", "oyendo", "oído", "oye", "oigas"),
        ("regar", "regando", "regado", "riega", "riegues"),
        ("tocar", "tocando", "tocado", "toca", "toques"),
        ("lanzar", "lanzando", "lanzado", "lanza", "lances"),
        ("resolver", "resolviendo", "resuelto", "resuelve", "resuelvas"),
        ("sonreír", "sonriendo", "sonreído", "sonríe", "sonrías"),
    ],
)
def test_spanish_verbs_have_their_other_forms(spanish, verb, gerund, participle, command, forbid):
    assert (spanish.gerund(verb), spanish.participle(verb)) == (gerund, participle)
    assert (spanish.command(verb, negative=False), spanish.command(verb, negative=True)) == (command, forbid)


@pytest.mark.parametrize(
    ("verb", "tense", "who", "clitic", "negative", "said"),
    [
        ("comer", Tense.PRESENT, ME, "", False, "como"),
        ("comer", Tense.PROGRESSIVE, SHE, "lo", True, "no lo está comiendo"),
        ("comer", Tense.GOING_TO, WE, "la", False, "vamos a comerla"),
        ("ver", Tense.PERFECT, THEY, "nos", False, "nos han visto"),
        ("levantarse", Tense.PRESENT, ME, "", True, "no me levanto"),
        ("levantarse", Tense.HAVE_TO, YOU, "", False, "tienes que levantarte"),
        ("acostarse", Tense.WANT_TO, WE, "", False, "queremos acostarnos"),
        ("abrir", Tense.SHOULD, ME, "", True, "no debería abrir"),
        ("dar", Tense.FUTURE, SHE, "me", False, "me dará"),
        ("nadar", Tense.USED_TO, WE, "", False, "nadábamos"),
        ("gustar", Tense.WOULD, SHE, "te", False, "te gustaría"),
    ],
)
def test_pronouns_stand_where_spanish_puts_them(spanish, verb, tense, who, clitic, negative, said):
    assert " ".join(filter(None, spanish.predicate(verb, tense, who, clitic=clitic, negative=negative))) == said


@pytest.mark.parametrize(
    ("singular", "plural"),
    [
        ("gato", "gatos"), ("flor", "flores"), ("lápiz", "lápices"), ("camión", "camiones"), ("paraguas", "paraguas"),
        ("sándwich", "sándwiches"),
        ("autobús", "autobuses"), ("jardín", "jardines"), ("sofá", "sofás"), ("café", "cafés"), ("rey", "reyes"),
        ("examen", "exámenes"), ("joven", "jóvenes"), ("azul", "azules"), ("gris", "grises"), ("marrón", "marrones"),
        ("lunes", "lunes"), ("sábado", "sábados"), ("pez", "peces"),
    ],
)  # fmt: skip
def test_spanish_plurals(spanish, singular, plural):
    assert spanish.plural(singular) == plural


@pytest.mark.parametrize(
    ("adjective", "forms"),
    [
        ("rojo", "rojo roja rojos rojas"),
        ("azul", "azul azul azules azules"),
        ("verde", "verde verde verdes verdes"),
        ("trabajador", "trabajador trabajadora trabajadores trabajadoras"),
        ("marrón", "marrón marrón marrones marrones"),
        ("feliz", "feliz feliz felices felices"),
    ],
)
def test_spanish_adjectives_agree(spanish, adjective, forms):
    whos = (Agreement(3, plural, gender) for plural in (False, True) for gender in "mf")
    assert " ".join(spanish.adjective(adjective, who) for who in whos) == forms


@pytest.mark.parametrize(
    ("noun", "determiner", "plural", "adjective", "en", "es"),
    [
        ("house", "the", False, "red", "the red house", "la casa roja"),
        ("house", "the", True, "red", "the red houses", "las casas rojas"),
        ("dress", "a", False, "elegant", "an elegant dress", "un vestido elegante"),
        ("book", "a", False, "good", "a good book", "un buen libro"),
        ("idea", "a", False, "good", "a good idea", "una buena idea"),
        ("water", "the", False, "cold", "the cold water", "el agua fría"),
        ("eagle", "a", False, None, "an eagle", "un águila"),
        ("eagle", "the", True, None, "the eagles", "las águilas"),
        ("eagle", "this", False, None, "this eagle", "esta águila"),
        ("classroom", "the", False, None, "the classroom", "el aula"),
        ("university", "a", False, None, "a university", "una universidad"),
        ("pants", "that", False, None, "those pants", "esos pantalones"),
        ("map", "many", True, None, "many maps", "muchos mapas"),
        ("hand", "the", True, None, "the hands", "las manos"),
    ],
)
def test_noun_phrases_in_both_languages(noun, determiner, plural, adjective, en, es):
    described = LEXICON.adjective(adjective) if adjective else None
    text = Nominals(LEXICON).build(LEXICON.nouns[noun], determiner, plural=plural, adjective=described).text
    assert (text.en, text.es) == (en, es)


def test_possessives_agree_with_the_thing_in_spanish_and_with_the_owner_in_english():
    build, nouns = Nominals(LEXICON).build, LEXICON.nouns
    girl, cats = build(nouns["girl"]), build(nouns["cat"], plural=True)
    assert build(nouns["hand"], possessive(girl), plural=True).text.en == "her hands"
    assert build(nouns["ball"], possessive(build(nouns["dog"]))).text.en == "its ball"
    assert build(nouns["milk"], possessive(cats)).text.es == "su leche"
    assert build(nouns["car"], owner=build(nouns["teacher"])).text.en == "the teacher's car"
    assert build(nouns["milk"], owner=cats).text.en == "the cats' milk"


def test_numbers_agree_in_gender(spanish):
    numbers = {text.en: text.es for text in LEXICON.texts["numbers"]}
    assert spanish.number(numbers["twenty-one"], GIRLS) == "veintiuna"
    assert spanish.number(numbers["thirty-one"], GIRLS) == "treinta y una"
    assert spanish.number(numbers["two hundred"], GIRLS) == "doscientas"
    assert spanish.number(numbers["twenty-one"], THEY) == "veintiún"


def test_a_woman_has_the_feminine_form_of_her_profession():
    what = Nominals(LEXICON).profession(LEXICON.nouns["teacher"], SHE, LEXICON.adjective("good"))
    assert (what.en, what.es) == ("a good teacher", "una buena maestra")
    assert Nominals(LEXICON).profession(LEXICON.nouns["doctor"], BOY).es == "médico"


@pytest.mark.parametrize(
    ("text", "contracted"),
    [
        ("Veo a el niño", "Veo al niño"),
        ("cerca de el río", "cerca del río"),
        ("A el niño", "Al niño"),
        ("a él", "a él"),
        ("de ella", "de ella"),
        ("la elegante", "la elegante"),
    ],
)
def test_spanish_contracts_al_and_del_but_not_the_pronoun(text, contracted):
    assert contract(text) == contracted
