"""Every fault is found in an example of it, and not in a translation that only looks like it."""

import pytest

from seq2seq.evaluation.faults import FAULTS, Triple, lost_numbers, make_checks, words

CONTEXT = [  # other lines of the test set: Tom and Roma are names, "no" and "a" are Spanish words, too
    Triple("I know Tom and no one in Roma.", "Conozco a Tom y a nadie en Roma.", "Conozco a Tom y a nadie en Roma."),
    Triple("A dog, a cat, or no dog?", "¿Un perro, un gato, o no?", "¿Un perro, un gato o no? A Tom no."),
]
KNOWN = {"el", "tiene", "perros", "perro", "n", "º"}  # of the training text

FAULTY = [
    ("untranslated", "The cat sleeps.", "The cat sleeps.", "El gato duerme.", "the cat sleeps"),
    ("untranslated", "The cat sleeps.", "El cat sleeps.", "El gato duerme.", "cat sleeps"),
    ("repetition", "The house is big.", "La casa es muy muy grande.", "La casa es grande.", "muy muy"),
    ("repetition", "He went home.", "Se fue a la casa a la casa.", "Se fue a casa.", "a la casa a la casa"),
    ("repetition", "It is big.", "Es graaaaande.", "Es grande.", "aaaaa"),
    ("repetition", "One.", "De la a de la b de la c.", "Uno de la lista.", "de la (3 times)"),
    ("too_long", "Stop!", "¡Alto ahí, o la policía vendrá a buscarte!", "¡Alto!", "42 characters for 5"),
    ("too_short", "We went home in our new car.", "Fuimos.", "Nos fuimos a casa.", "7 characters for 28"),
    ("too_short", "Hello.", "", "Hola.", "0 characters for 6"),
    ("missing_number", "It costs 76,000 euros.", "Cuesta 7.600 euros.", "Cuesta 76.000 euros.", "76,000"),
    ("missing_number", "From 5 to 5.", "De 5 a la una.", "De 5 a 5.", "5"),
    ("doubled_number", "I was born in 1990.", "Nací en 1990 en 1990.", "Nací en 1990.", "1990"),
    ("missing_name", "I saw Tom this morning.", "Vi a un hombre hoy.", "He visto a Tom hoy.", "Tom"),
    ("missing_name", "Tom's dog is here.", "Su perro está aquí.", "El perro de Tom está aquí.", "Tom"),
    ("negation", "I don't know him.", "Lo conozco.", "No lo conozco.", "lost: don't"),
    ("negation", "I don’t know him.", "Lo conozco.", "No lo conozco.", "lost: don't"),
    ("negation", "I know nobody.", "Conozco a todos.", "No conozco a nadie.", "lost: nobody"),
    ("negation", "I like it.", "No me gusta.", "Me gusta.", "added: no"),
    (
        "invented_words",
        "The dogs are odd.",
        "El perro RARUCHO es perro-raro, perruchó's.",
        "",
        "rarucho, es, raro, perruchó",
    ),
]
SOUND = [
    ("untranslated", "Tom!", "¡Tom!", "¡Tomás!"),  # a word that references have as often
    ("untranslated", "OK, hotel Excelsior.", "OK, hotel Excelsior.", "OK, hotel Excelsior."),
    ("repetition", "Very, very good.", "Muy muy bueno.", "Muy muy bueno."),
    ("repetition", "It is very very good.", "Es muy muy bueno.", "Es buenísimo."),
    ("repetition", "I don't know.", "No, no lo sé.", "No lo sé."),
    ("repetition", "It costs 1000000.", "Cuesta 1000000...", "Cuesta un millón."),
    ("too_long", "Hi.", "¡Hola!", "Hola."),
    ("too_long", "No smoking.", "Está prohibido fumar en este lugar.", "Aquí está prohibido fumar."),
    ("too_short", "We went to the cinema in town last night.", "Anoche fuimos al cine.", "Anoche fuimos al cine."),
    ("too_short", "", "", ""),
    ("missing_number", "It costs 76,000.5 euros.", "Cuesta 76 000,5 euros.", "Cuesta 76.000,5 euros."),
    ("missing_number", "I have 3 cats.", "Tengo tres gatos.", "Tengo 3 gatos."),
    ("missing_number", "The 21st century.", "El siglo veintiuno.", "El siglo XXI."),
    ("missing_number", "On 12.05.2020.", "El 12.05.2020.", "El 12.05.2020."),
    ("doubled_number", "From 5 to 5.", "De 5 a 5.", "De 5 a 5."),
    ("doubled_number", "At noon and at noon.", "A las 12 y a las 12.", "A mediodía y a mediodía."),
    ("missing_name", "I saw Tom this morning.", "Vi a Tom hoy.", "He visto a Tom hoy."),
    ("missing_name", "I live in Roma.", "Vivo en la capital.", "Vivo en Italia."),  # the reference keeps no name
    ("missing_name", "Dog or Cat?", "¿Gato?", "¿Dog o Cat?"),  # words that are lower-case elsewhere
    ("negation", "I don't know him.", "No lo conozco.", "No lo conozco."),
    ("negation", "Hardly anybody came.", "No vino casi nadie.", "No vino casi nadie."),  # the reference negates, too
    ("negation", "It is big, isn't it?", "Es grande, ¿verdad?", "Es grande, ¿no?"),
    ("negation", "There is a knot.", "Hay un nudo.", "Hay un nudo."),
    ("invented_words", "Mr O’Neil-SMITH has 3 dogs.", "EL o'neil tiene 3 perros, Smith; ⟨1⟩ n.º 4€ 😀", "El perro."),
]


def check(fault: str, triple: Triple, src_lang: str = "en", tgt_lang: str = "es") -> str | None:
    return make_checks([triple, *CONTEXT], src_lang, tgt_lang, KNOWN)[fault](triple)


@pytest.mark.parametrize(("fault", "source", "hypothesis", "reference", "message"), FAULTY)
def test_a_fault_is_found(fault: str, source: str, hypothesis: str, reference: str, message: str) -> None:
    assert check(fault, Triple(source, hypothesis, reference)) == message


@pytest.mark.parametrize(("fault", "source", "hypothesis", "reference"), SOUND)
def test_a_fault_is_not_found_where_there_is_none(fault: str, source: str, hypothesis: str, reference: str) -> None:
    assert check(fault, Triple(source, hypothesis, reference)) is None


def test_the_other_direction_knows_both_languages() -> None:
    assert check("negation", Triple("No lo sé.", "I know.", "I do not know."), "es", "en") == "lost: no"
    assert check("missing_number", Triple("Hay 1.500.", "There are 15.", "There are 1,500."), "es", "en") == "1.500"
    assert check("missing_number", Triple("Hay 1.500.", "There are 1,500.", "There are 1,500."), "es", "en") is None


def test_numbers_and_negation_are_left_out_for_other_languages() -> None:
    left_out = {"missing_number", "doubled_number", "negation", "inattention", "invented_words"}
    for languages in (("en", "de"), ("fr", "es")):
        assert make_checks(CONTEXT, *languages).keys() == FAULTS.keys() - left_out


def test_words_are_runs_of_letters() -> None:
    assert words("Tom’s well-known 2nd dog doesn't.") == ["Tom", "well", "known", "nd", "dog", "doesn't"]


@pytest.mark.parametrize(
    ("source", "translation", "lost"),
    [
        ("at 10:45", "a las 10:45", []),
        ("at 10:45", "a las 11:45", ["10:45"]),
        ("$1,250", "1.250 dólares", []),
        ("1000", "1 000", []),
        ("1 cat", "un gato", []),
        ("my 1st MP3", "mi primer MP3", []),
        ("٣" * 5000, "", ["٣" * 5000]),
        ("3 cats", "tres gatos", []),
        ("3 cats", "gatos", ["3"]),
        ("20 or 20", "20", ["20"]),
        ("no number", "7", []),
        ("In 1990 100 people died.", "En 1990 murieron 100 personas.", []),
        ("1 000 000 in 2020", "1.000.000 en 2020", []),
    ],
)
def test_a_number_is_lost_unless_its_digits_or_its_word_are_there(source, translation, lost):
    assert lost_numbers(source, translation, "es") == lost
