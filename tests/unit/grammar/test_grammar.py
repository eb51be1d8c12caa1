import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from grammar.agreement import Agreement, Tense, Text
from grammar.corpus import RESERVED, SEED, SEEN, SIZES, Pair, Splits, bare, generate, split_of, words
from grammar.phrases import Nominals, possessive
from grammar.reading import load_lexicon
from grammar.spanish import contract

BUNDLED = Path(__file__).parents[3] / "data" / "bundled"
LEXICON = load_lexicon()
ENGLISH, SPANISH, BUILD, NOUNS = LEXICON.english, LEXICON.spanish, Nominals(LEXICON).build, LEXICON.nouns
ME, SHE, WE, GIRLS = Agreement(1), Agreement(3, gender="f"), Agreement(1, plural=True), Agreement(3, True, "f")
ENGLISH_VERBS = """cry cries crying cried cried, run runs running ran run, see sees seeing saw seen,
use uses using used used, have has having had had, forget forgets forgetting forgot forgotten,
watch watches watching watched watched, follow follows following followed followed"""
ENGLISH_PLURALS = "box boxes, story stories, toy toys, child children, potato potatoes, piano pianos"
COMPARISONS = "big bigger biggest, nice nicer nicest, easy easier easiest, good better best, cheap cheaper cheapest"
CONJUGATIONS = """dormir present duermo duermes duerme dormimos duermen, oír future oiré oirás oirá oiremos oirán,
conocer present conozco conoces conoce conocemos conocen, elegir present elijo eliges elige elegimos eligen,
seguir preterite seguí seguiste siguió seguimos siguieron, leer preterite leí leíste leyó leímos leyeron,
traer preterite traje trajiste trajo trajimos trajeron, hacer preterite hice hiciste hizo hicimos hicieron,
buscar preterite busqué buscaste buscó buscamos buscaron, tener imperfect tenía tenías tenía teníamos tenían"""
OTHER_FORMS = """leer leyendo leído lee leas, dormir durmiendo dormido duerme duermas, ir yendo ido ve vayas,
seguir siguiendo seguido sigue sigas, tocar tocando tocado toca toques"""
SPANISH_PLURALS = "flor flores, lápiz lápices, camión camiones, sofá sofás, gris grises, lunes lunes, examen exámenes"


@pytest.fixture(scope="module")
def committed() -> dict[str, list[tuple[str, ...]]]:
    texts = {split: (BUNDLED / f"grammar.{split}.tsv").read_text(encoding="utf-8") for split in SIZES}
    return {split: [tuple(line.split("\t")) for line in text.splitlines()] for split, text in texts.items()}


def test_the_first_sentences_drawn_with_the_seed_are_the_committed_ones(committed):
    sizes = {"train": 500, "validation": 0, "test": 0}
    assert [(text.en, text.es) for text in generate(SEED, sizes)["train"]] == committed["train"][:500]


@pytest.mark.slow
def test_the_documented_command_gives_the_committed_bytes(tmp_path):
    command = [sys.executable, "data/grammar", "--output", str(tmp_path)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "1"}, cwd=BUNDLED.parents[1])
    for name in (f"grammar.{split}.tsv" for split in SIZES):
        assert (tmp_path / name).read_bytes() == (BUNDLED / name).read_bytes()


def test_the_files_have_the_promised_sizes_and_one_translation_of_each_sentence(committed):
    assert {split: len(pairs) for split, pairs in committed.items()} == SIZES
    pairs = [pair for split in committed.values() for pair in split]
    assert len({(bare(en), bare(es)) for en, es in pairs}) == len({bare(en) for en, _ in pairs}) == len(pairs)


@pytest.mark.parametrize("language", [0, 1])
def test_no_side_of_a_sentence_is_in_two_splits_or_in_the_everyday_test(committed, language):
    lines = (BUNDLED / "everyday.test.tsv").read_text(encoding="utf-8").splitlines()
    sides = [{bare(pair[language]) for pair in pairs} for pairs in committed.values()]
    sides.append({bare(line.split("\t")[language]) for line in lines})
    assert len(sides[-1]) > 400
    assert sum(map(len, sides)) == len(set().union(*sides))


def test_a_sentence_is_filed_by_the_combinations_that_it_shows():
    splits = Splits()
    blue = ("ball", "blue")
    other = next(pair for number in range(99) if split_of(pair := ("noun", str(number))) == "validation")
    assert splits.add(Pair(Text("The ball is blue.", "La bola es azul."), frozenset({blue})))
    assert not splits.add(Pair(Text("The ball is blue!", "La bola es azul."), frozenset()))  # an old sentence
    assert not splits.add(Pair(Text("Both.", "Ambos."), frozenset({blue, other})))
    assert not splits.add(Pair(Text(next(iter(RESERVED)), "Me duele."), frozenset()))
    assert {split: len(pairs) for split, pairs in splits.pairs.items()} == {"train": 0, "validation": 0, "test": 1}
    with pytest.raises(AssertionError, match="two translations"):
        splits.add(Pair(Text("The ball is blue!", "La pelota es azul."), frozenset()))


def test_the_documented_examples_are_in_test_and_their_combinations_not_in_train(committed):
    examples = {
        "The ball is blue.": "La bola es azul.",
        "The black cat drank the milk.": "El gato negro bebió la leche.",
    }
    assert examples.items() <= set(committed["test"])
    train = "\n".join(en.casefold() for en, _ in committed["train"])
    assert not re.search(r"\bblue balls?\b|\bballs? (is|are|was|were|isn't|aren't|wasn't|weren't)( not)? blue", train)
    assert not re.search(r"\bcats?\b[^.?\n]* (drank|drinks?|drinking|drunk) [^.?\n]*\bmilk\b", train)


def test_every_word_of_validation_and_test_is_often_in_train(committed):
    counts = Counter(word for pair in committed["train"] for side in pair for word in words(side))
    for pairs in (committed["validation"], committed["test"]):
        assert min(counts[word] for pair in pairs for side in pair for word in words(side)) >= SEEN


def test_sentences_are_well_written(committed):
    for en, es in (pair for pairs in committed.values() for pair in pairs):
        assert re.fullmatch(r"[A-Z][^?.]*([.?]|\? [A-Z][^?.]*\.)", en), en
        assert re.fullmatch(r"(¿[A-ZÁÉÍÓÚ][^?¿.]*\? ?)?([A-ZÁÉÍÓÚ][^?¿.]*\.)?", es), es
        assert not re.search(r"\s\s|\s[.,?]|^\s|\s$|\b[Aa] [aeio]|\b[Aa]n [bcdfgjk]", en), en
        assert not re.search(r"\s\s|\s[.,?]|\b(a|de) el\b", es), es


def entries(table: str) -> list[list[str]]:
    return [entry.split() for entry in table.split(",")]


def test_english_words_have_their_forms():
    for verb, *forms in entries(ENGLISH_VERBS):
        assert [ENGLISH.third(verb), ENGLISH.gerund(verb), ENGLISH.past(verb), ENGLISH.participle(verb)] == forms
    for noun, plural in entries(ENGLISH_PLURALS):
        assert ENGLISH.plural(noun) == plural
    for adjective, *forms in entries(COMPARISONS):
        assert [ENGLISH.comparative(adjective), ENGLISH.superlative(adjective)] == forms


def test_spanish_words_have_their_forms():
    for verb, tense, *forms in entries(CONJUGATIONS):
        assert [SPANISH.finite(verb, tense, form) for form in range(5)] == forms
    for verb, *forms in entries(OTHER_FORMS):
        commands = [SPANISH.command(verb, negative=is_negative) for is_negative in (False, True)]
        assert [SPANISH.gerund(verb), SPANISH.participle(verb), *commands] == forms
    for word, plural in entries(SPANISH_PLURALS):
        assert SPANISH.plural(word) == plural


def test_verb_phrases_have_their_auxiliaries_and_pronouns():
    assert ENGLISH.predicate("eat", Tense.PRESENT, SHE, support=True) == ("does", "eat")
    assert ENGLISH.predicate("eat", Tense.WANT_TO, SHE, support=False) == ("", "wants to eat")
    assert ENGLISH.predicate("eat", Tense.USED_TO, SHE, support=True) == ("did", "use to eat")
    assert SPANISH.predicate("comer", Tense.PROGRESSIVE, SHE, clitic="lo", negative=True) == ("no lo está comiendo", "")
    assert SPANISH.predicate("acostarse", Tense.WANT_TO, WE) == ("queremos", "acostarnos")
    assert SPANISH.predicate("levantarse", Tense.PRESENT, ME, negative=True) == ("no me levanto", "")


@pytest.mark.parametrize(
    ("phrase", "english", "spanish"),
    [
        (BUILD(NOUNS["book"], "a", adjective=LEXICON.adjective("good")), "a good book", "un buen libro"),
        (BUILD(NOUNS["water"], adjective=LEXICON.adjective("cold")), "the cold water", "el agua fría"),
        (BUILD(NOUNS["eagle"], "a"), "an eagle", "un águila"),
        (BUILD(NOUNS["eagle"], "this"), "this eagle", "esta águila"),
        (BUILD(NOUNS["pants"], "that"), "those pants", "esos pantalones"),
        (BUILD(NOUNS["ball"], possessive(BUILD(NOUNS["dog"]))), "its ball", "su bola"),
        (BUILD(NOUNS["milk"], owner=BUILD(NOUNS["cat"], plural=True)), "the cats' milk", "la leche de los gatos"),
    ],
)
def test_noun_phrases_agree_in_both_languages(phrase, english, spanish):
    assert (phrase.text.en, phrase.text.es) == (english, spanish)


def test_other_words_agree_with_whom_they_describe():
    adjectives = " ".join(SPANISH.adjective("trabajador", who) for who in (ME, SHE, WE, GIRLS))
    assert adjectives == "trabajador trabajadora trabajadores trabajadoras"
    assert (SPANISH.number("treinta y un", GIRLS), SPANISH.number("cientos", GIRLS)) == ("treinta y una", "cientas")
    what = Nominals(LEXICON).profession(NOUNS["teacher"], SHE, LEXICON.adjective("good"))
    assert (what.en, what.es) == ("a good teacher", "una buena maestra")
    assert contract("Veo a el niño de el río, a él y a la elegante") == "Veo al niño del río, a él y a la elegante"
