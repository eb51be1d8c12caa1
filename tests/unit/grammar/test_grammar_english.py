import pytest
from grammar.agreement import Agreement, Tense
from grammar.english import English
from grammar.reading import load_lexicon

ME, YOU, SHE = Agreement(1), Agreement(2), Agreement(3, gender="f")
WE, THEY = Agreement(1, plural=True), Agreement(3, plural=True)


@pytest.fixture(scope="module")
def english() -> English:
    return load_lexicon().english


@pytest.mark.parametrize(
    ("verb", "forms"),
    [
        ("eat", "eats eating ate eaten"), ("go", "goes going went gone"), ("cry", "cries crying cried cried"),
        ("play", "plays playing played played"), ("run", "runs running ran run"),
        ("write", "writes writing wrote written"),
        ("watch", "watches watching watched watched"), ("try", "tries trying tried tried"),
        ("put", "puts putting put put"),
        ("forget", "forgets forgetting forgot forgotten"), ("visit", "visits visiting visited visited"),
        ("see", "sees seeing saw seen"), ("hug", "hugs hugging hugged hugged"),
        ("wash", "washes washing washed washed"),
        ("have", "has having had had"), ("fly", "flies flying flew flown"), ("open", "opens opening opened opened"),
        ("follow", "follows following followed followed"), ("repair", "repairs repairing repaired repaired"),
        ("carry", "carries carrying carried carried"), ("use", "uses using used used"),
        ("rain", "rains raining rained rained"),
    ],
)  # fmt: skip
def test_english_verbs(english, verb, forms):
    parts = (english.third(verb), english.gerund(verb), english.past(verb), english.participle(verb))
    assert " ".join(parts) == forms


def test_english_particles_stay_behind(english):
    assert (english.third("look for"), english.past("wake up")) == ("looks for", "woke up")


@pytest.mark.parametrize(
    ("tense", "who", "support", "auxiliary", "rest"),
    [
        (Tense.PRESENT, SHE, True, "does", "eat"),
        (Tense.PRESENT, SHE, False, "", "eats"),
        (Tense.PAST, YOU, True, "did", "eat"),
        (Tense.PERFECT, THEY, False, "have", "eaten"),
        (Tense.WAS_DOING, WE, False, "were", "eating"),
        (Tense.HAVE_TO, SHE, True, "does", "have to eat"),
        (Tense.WANT_TO, SHE, False, "", "wants to eat"),
        (Tense.GOING_TO, ME, False, "am", "going to eat"),
    ],
)
def test_english_auxiliaries(english, tense, who, support, auxiliary, rest):
    assert english.predicate("eat", tense, who, support=support) == (auxiliary, rest)


@pytest.mark.parametrize(
    ("word", "plural"),
    [
        ("cat", "cats"),
        ("box", "boxes"),
        ("story", "stories"),
        ("toy", "toys"),
        ("child", "children"),
        ("knife", "knives"),
        ("watch", "watches"),
        ("potato", "potatoes"),
        ("piano", "pianos"),
        ("living room", "living rooms"),
    ],
)
def test_english_plurals(english, word, plural):
    assert english.plural(word) == plural


@pytest.mark.parametrize(
    ("adjective", "comparative", "superlative"),
    [
        ("big", "bigger", "biggest"),
        ("nice", "nicer", "nicest"),
        ("easy", "easier", "easiest"),
        ("good", "better", "best"),
        ("tall", "taller", "tallest"),
        ("expensive", "more expensive", "most expensive"),
        ("narrow", "narrower", "narrowest"),
        ("cheap", "cheaper", "cheapest"),
        ("famous", "more famous", "most famous"),
        ("new", "newer", "newest"),
        ("wide", "wider", "widest"),
        ("bad", "worse", "worst"),
    ],
)
def test_english_comparison(english, adjective, comparative, superlative):
    assert (english.comparative(adjective), english.superlative(adjective)) == (comparative, superlative)
