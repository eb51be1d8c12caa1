"""Loops are told from what the source repeats; probes of every family are made from a test set and measured."""

import pytest

from seq2seq.evaluation.robustness import Family, has_loop, make_probes, measure, table
from tests.refusing import refuses

PAIRS = [
    (f"The {name} cat number {i} drank the milk, and {name} saw it.", f"El gato {i} de {name} bebió la leche y lo vio.")
    for i, name in enumerate(["Ann", "Bob", "Cora", "Dan", "Eva", "Finn", "Gus", "Hal"] * 5)
] + [("A dog sleeps.", "Un perro duerme.")] * 5


LOOPS = [
    ("Why?", "¿Por qué por qué por qué?"),
    ("I am tired.", "Estoy cansado cansado cansado."),
    ("A long day.", "Un día muy largo, un día muy largo, un día muy largo."),
    ("THE CAT", "El SSSSSSS"),
    ("He left.", "Se fue a la casa, vio a la casa, volvió a la casa y a la casa."),
    ("Really really?", "De verdad verdad verdad"),
    ("so", "jajajajaja"),
]
NO_LOOPS = [
    ("No, no, no!", "¡No, no, no!"),
    ("It is very very very good.", "Es muy muy muy bueno."),
    ("Wait!!!!", "¡¡¡Espera!!!!"),
    ("Hahahaha!", "¡Jajajaja!"),
    ("He saw the dog and the cat.", "Vio al perro y al gato, y el perro y el gato lo vieron."),
    ("Well.", "Bien bien."),
    ("", ""),
    ("x", "..."),
]


@pytest.mark.parametrize(("source", "translation"), [*LOOPS, *NO_LOOPS])
def test_a_loop_is_what_the_source_does_not_repeat_as_often(source: str, translation: str):
    assert has_loop(source, translation) == ((source, translation) in LOOPS)


def test_every_family_has_its_probes_and_they_are_the_same_each_time():
    probes = make_probes(PAIRS, 100)
    assert probes == make_probes(PAIRS, 100)
    assert probes != make_probes(PAIRS, 100, seed=2)
    assert list(probes) == [
        "single words", "CAPITALS", "Title Case", "no final stop", "emoji", "numbers and dates", "placeholders",
        "repeated words", "long lines", "odd punctuation",
    ]  # fmt: skip
    assert all(0 < len({probe.text for probe in family}) == len(family) <= 10 for family in probes.values())
    assert all(probe.text == probe.plain[0].upper() for probe in probes["CAPITALS"])
    assert all(probe.kept[0] in probe.text for probe in probes["placeholders"] + probes["emoji"])
    assert all(len(probe.text.split()) >= 80 for probe in probes["long lines"])
    refuses("no probe can be made", make_probes, [("", "")])


def test_a_family_is_measured_beside_its_plain_sentences():
    known = dict(PAIRS)
    probes = make_probes(PAIRS, 100)

    def perfect(texts: list[str]) -> list[str]:
        return [known.get(text, text + " 😀") for text in texts]

    def looping(texts: list[str]) -> list[str]:
        return ["sí " * 20 for _ in texts]

    good, bad = measure(probes, perfect, "es"), measure(probes, looping, "es")
    assert good["single words"] == Family(len(probes["single words"]), 0, 0, 0, 0, None, None)
    assert good["CAPITALS"].plain_chrf == 100
    assert (good["CAPITALS"].chrf or 0) < 90
    assert good["placeholders"].lost_parts == 0
    for name, family in bad.items():
        assert family.loops == family.probes == len(probes[name])
    assert bad["placeholders"].lost_parts == bad["placeholders"].probes
    assert bad["numbers and dates"].lost_numbers == bad["numbers and dates"].probes
    copied = measure(probes, lambda texts: texts, "es")
    assert copied["odd punctuation"].copies == copied["odd punctuation"].probes
    assert table(good).row_count == 10
    assert {family.invented for family in measure(probes, looping, "es", {"no"}).values()} == {100}
    assert {family.invented for family in measure(probes, looping, "es", {"sí"}).values()} == {0}


def test_a_long_run_is_counted_in_one_pass() -> None:
    """Work that grows with the square of the length would take minutes here."""
    text = "cat " * 50_000
    assert not has_loop(text, text)
    assert has_loop("A cat.", text)
