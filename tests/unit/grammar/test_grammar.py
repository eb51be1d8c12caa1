import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from grammar import corpus
from grammar.corpus import HELD_OUT, SEEN, SIZES, bare, generate, split_of, words
from grammar.lexicon import Lexicon
from grammar.reading import load_lexicon

BUNDLED = Path(__file__).parents[3] / "data" / "bundled"
SPLITS = tuple(SIZES)

# Sentences that train must contain, one for each phenomenon; a pattern of the English, a pattern of the Spanish.
PHENOMENA = {
    "adjective after noun, feminine": (r"^The \w+ is red\.$", r"^La \w+ es roja\.$"),
    "adjective agrees in the plural": (r"^The \w+ are white\.$", r"^Los \w+ son blancos\.$"),
    "adjective of one ending": (r"^The \w+ is blue\.$", r"^La \w+ es azul\.$"),
    "color beside its noun": (r"^The black (cat|dog|horse|mouse|wolf)", r"^El (gato|perro|caballo|ratón|lobo) negro"),
    "shortened bueno": (r" a good \w+\.$", r" un buen \w+\.$"),
    "subject pronoun dropped": (r"^(I'm|I am) \w+ing ", r"^(No )?[Ee]stoy \w+[aey]ndo "),
    "he kept": (r"^He \w+ed ", r"^Él \w+ó "),
    "she kept": (r"^She \w+ed ", r"^Ella \w+ó "),
    "ser": (r"^\w+ is (tall|rich|nice)\.$", r"^\w+ es (alt[oa]|ric[oa]|simpátic[oa])\.$"),
    "estar": (r"^The \w+ is (cold|hot)\.$", r"^(El|La) \w+ está (frí[oa]|caliente)\.$"),
    "present": (r"^My \w+ \w+s\b", r"^Mi \w+ (no )?\w+[ae]\b"),
    "progressive": (
        r"(are|'re) (swimming|eating|reading|working)",
        r"\b[Ee]st(án|amos|ás) (nadando|comiendo|leyendo|trabajando)",
    ),
    "progressive with a pronoun": (r"(is|'s) \w+ing (him|her)\b", r"l[oa] está \w+ndo"),
    "preterite": (r"^They (bought|ate|saw|found)", r"^(Compraron|Comieron|Vieron|Encontraron)"),
    "irregular preterite": (r" put the ", r"(Puse|Pusiste|puso|Pusimos|Pusieron) "),
    "imperfect": (r"^(We|They) (were|weren't) \w+\.$", r"^(No )?(([Ee]st|[Ee]r)\w+|\w+ían|\w+íamos) \w+\.$"),
    "used to": (r"used to", r"\w+(ía|aba)"),
    "perfect": (r"has already", r" ya ha "),
    "future": (r"^I'll ", r"é\b"),
    "ir a": (r"^We're going to ", r"^Vamos a "),
    "obligation": (r"has to", r"tiene que"),
    "wish": (r"wants to", r"quiere"),
    "conditional": (r"would like to", r"gustaría"),
    "negation": (r" doesn't ", r"\bno "),
    "yes-no question": (r"^Does \w+ \w+.*\?$", r"^¿\w+ "),
    "question word": (r"^Where is ", r"^¿Dónde está "),
    "what": (r"^What are you ", r"^¿Qué (estás|vas) "),
    "whom": (r"^Who (do|did|are|will|can) (you|they|we|I) ", r"^¿A quién "),
    "how many": (r"^How many \w+s ", r"^¿Cuántas "),
    "object pronoun": (r"^(I|We|They) \w+ (him|her|them)\.$", r"^(L[oa]s?) \w+\.$"),
    "pronoun on the infinitive": (r"(can|must|wants? to|going to) \w+ us", r"\w+rnos"),
    "pronoun for a thing": (r"\? I don't see it\.", r"\? No l[oa] veo\."),
    "dative": (r" (gave|told|sent|brought|showed) me ", r"\b[Mm]e (di|cont|envi|traj|mostr)\w+ "),
    "dative said twice": (r" to (the|his|her|your|my) (girl|sister|boy|brother)", r"\b[Ll]e\b.* (a|al) \w+"),
    "gustar": (r"^I like the ", r"^Me gusta "),
    "gustar in the plural": (r"^They like \w+s\.$", r"^Les gustan l[oa]s "),
    "encantar": (r"loves (this|the)", r"le encanta (est|el|la)"),
    "doler": (r"^My (head|back|throat|stomach|foot|knee) hurts", r"^Me duele (mucho )?(la|el) "),
    "reflexive": (r" gets? (up|dressed)", r"\b(se|[Mm]e|[Tt]e|[Nn]os) (levant|vist)\w+"),
    "body parts take the article": (r"(his|her) hands", r"las manos"),
    "numbers": (r"^There are two \w+", r"^Hay dos \w+"),
    "numbers agree": (r"twenty-one \w+", r"veintiuna \w+"),
    "time of day": (r"^(It's|It is) \w+ o'clock", r"^Son las \w+\.$"),
    "possessive": (r"^Our \w+s? ", r"^Nuestr[oa]s? "),
    "owner": (r"^Ana's ", r" de Ana "),
    "hay": (r"^There is no ", r"^No hay "),
    "place": (r" under the table", r" debajo de la mesa"),
    "personal a": (
        r"(helped|greeted|called|followed) the (man|girl|king|woman|boy)",
        r" a(l| la) (hombre|niña|rey|mujer|niño)\b",
    ),
    "al": (r" to the (park|lake|museum|river|market)", r" al (parque|lago|museo|río|mercado)"),
    "del": (r" in front of the (door|car|tree)", r" delante (del auto|del árbol|de la puerta)"),
    "el agua": (r"^The eagle|the water", r"\b[Ee]l (agua|águila)"),
    "weather": (r"^It's hot", r"^Hace calor"),
    "tener": (r" is hungry", r" tiene hambre"),
    "age": (r" is \w+ years old", r" tiene \w+ años"),
    "profession without article": (r"^(She|Ana|Laura|Marta|Elena) (is|was) an? \w+\.$", r"^\w+ (es|era) \w+[ae]\.$"),
    "comparison": (r" more expensive than ", r" más car[oa]s? que "),
    "irregular comparison": (r" better than ", r" mejor(es)? que "),
    "superlative": (r"the (tallest|oldest|newest|most)", r"más \w+ (de la|del)"),
    "generic plural": (r"^(Cats|Dogs|Monkeys|Mice) \w+ \w+\.", r"^Los (gatos|perros|monos|ratones) \w+ "),
    "because": (r" because (he|she)", r" porque (está|tiene|estaba|tenía)"),
    "that": (r" thinks that ", r" cree que "),
    "who": (r" who is ", r" que está "),
    "command": (r"^Open the ", r"^Abre "),
    "forbidding": (r"^Don't (open|clean|cut|wash|use|call)", r"^No (abras|limpies|cortes|laves|uses|llames)"),
    "courtesy": (r", please\.$", r", por favor\.$"),
}


@pytest.fixture(scope="module")
def lexicon() -> Lexicon:
    return load_lexicon()


@pytest.fixture(scope="module")
def committed() -> dict[str, list[tuple[str, str]]]:
    pairs = {}
    for split in SPLITS:
        lines = (BUNDLED / f"grammar.{split}.tsv").read_text(encoding="utf-8").removesuffix("\n").split("\n")
        pairs[split] = [tuple(line.split("\t")) for line in lines]
    return pairs


@pytest.mark.slow
def test_the_documented_command_gives_the_committed_bytes(tmp_path):
    command = [sys.executable, "data/grammar", "--output", str(tmp_path)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "1"}, cwd=BUNDLED.parents[1])
    for split in SPLITS:
        name = f"grammar.{split}.tsv"
        assert (tmp_path / name).read_bytes() == (BUNDLED / name).read_bytes()


def test_the_seed_decides_the_corpus():
    sizes = {"train": 40, "validation": 0, "test": 0}
    once, again, other = (generate(seed, sizes) for seed in (1, 1, 2))
    assert once == again
    assert once != other


def test_the_files_have_the_promised_sizes(committed):
    assert {split: len(pairs) for split, pairs in committed.items()} == SIZES
    assert all(len(pair) == 2 for pairs in committed.values() for pair in pairs)


def test_no_side_of_a_sentence_is_in_two_splits(committed):
    for language in (0, 1):
        sides = {split: {bare(pair[language]) for pair in pairs} for split, pairs in committed.items()}
        assert not sides["train"] & sides["test"]
        assert not sides["train"] & sides["validation"]
        assert not sides["test"] & sides["validation"]


def test_the_everyday_test_shares_no_side_with_the_grammar(committed):
    lines = (BUNDLED / "everyday.test.tsv").read_text(encoding="utf-8").splitlines()
    for language in (0, 1):
        everyday = {bare(line.split("\t")[language]) for line in lines}
        assert len(everyday) > 400
        assert not everyday & {bare(pair[language]) for pairs in committed.values() for pair in pairs}


def test_an_english_sentence_has_one_translation_even_without_case_and_punctuation(committed):
    spanish: dict[str, set[str]] = {}
    for pairs in committed.values():
        for en, es in pairs:
            spanish.setdefault(bare(en), set()).add(es)
    assert sum(map(len, spanish.values())) == sum(SIZES.values())


def test_two_translations_of_one_sentence_are_refused():
    splits = corpus.Splits()
    splits.add(corpus.Pair(corpus.Text("I see it.", "Lo veo."), frozenset()))
    with pytest.raises(AssertionError, match="two translations"):
        splits.add(corpus.Pair(corpus.Text("I see it!", "La veo."), frozenset()))


def test_a_sentence_is_filed_by_the_combinations_that_it_shows():
    splits = corpus.Splits()
    splits.add(corpus.Pair(corpus.Text("The ball is blue.", "La bola es azul."), frozenset({("ball", "blue")})))
    assert [len(splits.pairs[split]) for split in SPLITS] == [0, 0, 1]


def test_held_out_combinations_are_a_small_share_and_the_examples_among_them():
    shares = Counter(split_of(("noun", str(number))) for number in range(10_000))
    assert 400 < shares["test"] < 600
    assert 200 < shares["validation"] < 400
    assert all(split_of(combination) == split for combination, split in HELD_OUT.items())


@pytest.mark.parametrize(
    ("english", "spanish"),
    [("The ball is blue.", "La bola es azul."), ("The black cat drank the milk.", "El gato negro bebió la leche.")],
)
def test_the_documented_examples_are_in_test_and_their_combinations_not_in_train(committed, english, spanish):
    assert (english, spanish) in committed["test"]
    train = " ".join(en.casefold() for en, _ in committed["train"])
    assert not re.search(r"\bblue balls?\b|\bballs? (is|are|was|were|isn't|aren't|wasn't|weren't)( not)? blue", train)
    assert not re.search(r"\bcats?\b[^.?]* (drank|drinks?|drinking|drunk) [^.?]*\bmilk\b", train)


def test_every_word_of_validation_and_test_is_often_in_train(committed):
    counts = Counter(word for pair in committed["train"] for side in pair for word in words(side))
    for split in ("validation", "test"):
        assert min(counts[word] for pair in committed[split] for side in pair for word in words(side)) >= SEEN


def test_every_word_of_the_lexicon_is_in_train(committed, lexicon):
    seen = Counter(word for en, _ in committed["train"] for word in words(en))
    for noun in lexicon.nouns.values():
        heads = (noun.en.split()[-1], lexicon.english.plural(noun.en).split()[-1])
        assert sum(seen[head] for head in heads) >= SEEN, noun.en
    assert all(seen[adjective.en] >= SEEN for adjective in lexicon.adjectives)


@pytest.mark.parametrize("phenomenon", PHENOMENA)
def test_train_shows_the_phenomenon(committed, phenomenon):
    english, spanish = (re.compile(pattern) for pattern in PHENOMENA[phenomenon])
    matching = [es for en, es in committed["train"] if english.search(en)]
    assert sum(bool(spanish.search(es)) for es in matching) >= 3, f"{len(matching)} match in English"


def test_sentences_are_well_written(committed):
    for pairs in committed.values():
        for en, es in pairs:
            assert re.fullmatch(r"[A-Z][^?.]*([.?]|\? [A-Z][^?.]*\.)", en), en
            assert re.fullmatch(r"(¿[A-ZÁÉÍÓÚ][^?¿.]*\? ?)?([A-ZÁÉÍÓÚ][^?¿.]*\.)?", es), es
            assert en.count("?") == es.count("?") == es.count("¿")
            assert not re.search(r"\s\s|\s[.,?]|^\s|\s$", en + "\n" + es), (en, es)
            assert not re.search(r"\b(a|de) el\b", es), es


def test_english_articles_follow_the_sound(committed):
    text = " ".join(en for pairs in committed.values() for en, _ in pairs)
    assert not re.search(r"\b[Aa] [aeio]|\b[Aa] (ugly|umbrella|uncle)|\b[Aa]n ([^aeiouh]|university|useful)", text)


def test_spanish_articles_agree_with_their_nouns(committed, lexicon):
    genders = {}
    for noun in lexicon.nouns.values():
        genders[noun.es] = (noun.gender, False)
        genders.setdefault(lexicon.spanish.plural(noun.es), (noun.gender, True))
    articles = {"el": ("m", False), "la": ("f", False), "los": ("m", True), "las": ("f", True)}
    articles |= {"este": ("m", False), "esta": ("f", False), "estos": ("m", True), "estas": ("f", True)}
    articles |= {"algunos": ("m", True), "algunas": ("f", True), "nuestro": ("m", False), "nuestra": ("f", False)}
    unclear = (
        *lexicon.spanish.stressed_a,
        "rompecabezas",
        "paraguas",
    )  # feminine with el, or with one form for both numbers
    checked = 0
    for pairs in committed.values():
        for _, es in pairs:
            for article, noun in re.findall(r"\b(\w+) (?=(\w+))", es.casefold()):
                if article in articles and noun in genders and noun not in unclear:
                    assert articles[article] == genders[noun], es
                    checked += 1
    assert checked > 10_000
