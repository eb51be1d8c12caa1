"""Training text is encoded anew each epoch: split at random, in unusual forms on both sides; other text stays plain."""

import itertools
import random
from collections import Counter
from dataclasses import replace
from typing import Any
from unicodedata import combining

import pytest
from preparing import write

from seq2seq.data.batching import Batch, BatchLoader
from seq2seq.data.dataset import Pairs
from seq2seq.data.epochs import BlockId, Encoder, PreparedEpochs
from seq2seq.data.loading import training_feed, validation_loaders
from seq2seq.data.modifiers import FAMILIES, Modifiers
from seq2seq.data.prepare import prepare
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.settings.training import ModifiersConfig, SubwordSamplingConfig, TrainingConfig
from seq2seq.text.normalise import normalise
from seq2seq.text.tokenizer import SPECIAL_IDS, UNK, Tokenizer, train_tokenizer
from seq2seq.text.vocabulary import Tokenizers
from tests.unit.conftest import SENTENCES

SAMPLES = list(zip(SENTENCES, reversed(SENTENCES), strict=True))


def encoder(tokenizer: Tokenizer, max_length: int = 60, alpha: float = 0.2, share: float = 0.0) -> Encoder:
    sampling, modifiers = SubwordSamplingConfig(alpha=alpha), ModifiersConfig(share=share)
    return Encoder(Tokenizers.joint(tokenizer), max_length, sampling, modifiers, ("en", "es"))


def test_about_the_share_of_pairs_is_modified_and_the_same_ones_with_the_same_seed(tokenizer: Tokenizer):
    plain, modifying = tokenizer.encode(SENTENCES), encoder(tokenizer, alpha=0.0, share=0.5, max_length=200)
    src, tgt = modifying.encode(plain, plain, [1, 2])
    changed = [ids for ids, other, before in zip(src, tgt, plain, strict=True) if (ids, other) != (before, before)]
    assert 0.35 < len(changed) / len(SENTENCES) <= 0.6
    assert (src, tgt) == modifying.encode(plain, plain, [1, 2]) != modifying.encode(plain, plain, [1, 3])


@pytest.mark.parametrize("randomness", [{"alpha": 0.5}, {"alpha": 0.0, "share": 1.0}, {"alpha": 0.5, "share": 1.0}])
def test_a_pair_that_randomness_would_make_too_long_stays_plain(tokenizer: Tokenizer, randomness: dict[str, Any]):
    plain = tokenizer.encode(SENTENCES)
    limit = max(map(len, plain))
    src, tgt = encoder(tokenizer, max_length=limit, **randomness).encode(plain, plain, [1])
    assert max(map(len, src + tgt)) <= limit
    assert src != plain


def texts(tokenizer: Tokenizer, batches: list[Batch]) -> Counter[tuple[str, str]]:
    rows = [row for batch in batches for row in zip(batch.src.tolist(), batch.tgt_in.tolist(), strict=True)]
    sides = ([[i for i in row[side] if i not in SPECIAL_IDS] for row in rows] for side in (0, 1))
    return Counter(zip(*map(tokenizer.decode, sides), strict=True))


@pytest.mark.slow
def test_prepared_pairs_come_once_an_epoch_split_otherwise_each_time(tokenizer: Tokenizer):
    pairs = Pairs.of(*(tokenizer.encode([pair[side] for pair in SAMPLES]) for side in (0, 1)))
    source = PreparedEpochs(pairs, 3, None, encoder(tokenizer), 100)
    loader = BatchLoader(source, max_tokens=300)
    epoch = list(itertools.takewhile(lambda _: loader.state_dict()["epoch"] == 0, loader))
    assert texts(tokenizer, epoch) == Counter(SAMPLES)
    assert all(max(batch.src.numel(), batch.tgt_in.numel()) <= 300 for batch in epoch), "of sampled lengths"
    blocks = list(itertools.islice(source(BlockId(0, 0)), 6))
    assert [len(block.pairs) for block in blocks[:5]] == [len(SAMPLES) // 5] * 5
    first, again = blocks[0].pairs.lengths, blocks[5].pairs.lengths
    assert (first != again).any()


@pytest.mark.parametrize("randomness", [{"alpha": 0.5}, {"alpha": 0.0, "share": 1.0}])
def test_a_pair_with_an_unknown_token_stays_as_it_is(randomness: dict[str, Any]):
    narrow = train_tokenizer(SENTENCES, TokenizerConfig(vocab_size=45, byte_fallback=False))
    pairs = Pairs.of([*([[UNK, 7]] * 3), *narrow.encode(SENTENCES[3:])], narrow.encode(SENTENCES))
    block = next(PreparedEpochs(pairs, 3, None, encoder(narrow, **randomness), 1000)(BlockId(0, 0)))
    rows = [block.pairs[i] for i in range(len(block.pairs))]
    kept = [tgt.tolist() for src, tgt in rows if src.tolist() == [UNK, 7]]
    assert sorted(kept) == sorted(narrow.encode(SENTENCES[:3]))


@pytest.mark.slow
def test_only_training_batches_are_sampled_and_modified(tmp_path):
    write(tmp_path / "t.tsv", SAMPLES[:160])
    write(tmp_path / "v.tsv", SAMPLES[160:])
    data = DataConfig(root=str(tmp_path), train=["t.tsv"], validation=["v.tsv"], test=["v.tsv"], remove_overlap=False)
    sampling, modifiers = SubwordSamplingConfig(alpha=0.2), ModifiersConfig(share=0.5)
    training = TrainingConfig(max_tokens=400, subword_sampling=sampling, modifiers=modifiers)
    config = Config(data=data, tokenizer=TokenizerConfig(vocab_size=300), training=training)
    prepared = prepare(data, config.tokenizer)
    batches = list(itertools.islice(training_feed(config, prepared, rank=0, world_size=1, pin=False), 40))
    drawn = texts(prepared.tokenizer.target, batches)
    assert 0.3 < sum(count for pair, count in drawn.items() if pair not in SAMPLES) / drawn.total() < 0.6
    sampled = sum(int((batch.tgt_out != 0).sum()) - len(batch.src) for batch in batches)
    assert sampled > 1.1 * int(prepared.train.lengths[:, 1].sum())
    (loader,) = validation_loaders(config, prepared, rank=0, world_size=1)
    plain = sum(int((batch.tgt_out != 0).sum()) - len(batch.src) for batch in loader)
    assert plain == int(prepared.validation.lengths[:, 1].sum())


PAIRS = [
    ("The cat drank the milk.", "El gato bebió la leche."),
    ("The teacher saw Boston, the doctor didn't.", "El profesor vio Boston, el médico no."),
    ("I said \"yes\" at 10:45... and you?", "Dije \"sí\" a las 10:45... ¿y tú?"),
    ("What is the price of 25 apples?", "¿Cuál es el precio de 25 manzanas?"),
    ("Save {name} as %1$s in C:\\temp", "Guardar {name} como %1$s en C:\\temp"),
    ("OK", "Vale"),
]  # fmt: skip
WORDS = {"the", "what", "el", "cuál", "save", "guardar"}
VOCABULARY = TokenizerConfig(type="bpe", vocab_size=345, user_symbols=["<bt>", "»es"])
TOKENIZERS = Tokenizers.joint(train_tokenizer([*itertools.chain(*PAIRS), *[" ".join(sorted(WORDS))] * 90], VOCABULARY))
assert TOKENIZERS.source.words >= WORDS
SCRIPTS = [
    "我昨天在北京看了一本书。",
    "これは本です",
    "هذا كتاب جديد.",
    "यह एक नई किताब है।",
    "die straße, ihre größe?",
    "το σπίτι.",
]


def test_every_weight_is_of_a_family():
    assert {*FAMILIES, "share", "own"} == vars(ModifiersConfig()).keys()


def only(*families: str) -> ModifiersConfig:
    weights: dict[str, Any] = {name: float(name in families) for name in FAMILIES}
    return ModifiersConfig(share=1.0, **weights)


def forms(
    pair: tuple[str, str], *families: str, codes: tuple[str, str] = ("en", "es"), count: int = 200
) -> set[tuple[str, str]]:
    """Return all forms of a pair that families give it in so many draws."""
    modifiers, rng = Modifiers(only(*families), codes, TOKENIZERS), random.Random(1)
    return {modifiers.modify(pair, PAIRS[0], rng) for _ in range(count)}


def test_families_come_by_their_weights_and_the_same_generator_gives_the_same_forms():
    modifiers = Modifiers(replace(only("capitals"), capitals=3.0, list_marks=1.0), ("en", "es"), TOKENIZERS)
    drawn = [[modifiers.modify(PAIRS[0], PAIRS[1], rng) for _ in range(2000)] for rng in map(random.Random, (5, 5))]
    assert drawn[0] == drawn[1]
    assert sum(src.isupper() for src, _ in drawn[0]) / 2000 == pytest.approx(0.75, abs=0.04)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_form_is_normalised_and_differs_and_no_side_is_empty(family: str):
    assert (changed := [form for pair in PAIRS for form in forms(pair, family) if form != pair])
    assert all(side and normalise(side) == side for form in changed for side in form)


@pytest.mark.parametrize("family", ["code", "symbols", "list_marks", "brackets", "numbers"])
def test_what_is_inserted_stands_on_both_sides(family: str):
    for form in forms(PAIRS[0], family):
        added = [Counter(side.split()) - Counter(plain.split()) for side, plain in zip(form, PAIRS[0], strict=True)]
        plain_words = {"El", "gato", "bebió", "la", "leche", "The", "cat", "drank", "the", "milk", "milk.", "leche."}
        symbols = [{word.strip(".") for word in words if not any(p in word for p in plain_words)} for words in added]
        assert symbols[0] == symbols[1], form


@pytest.mark.parametrize(
    ("family", "pair", "expected"),
    [
        ("capitals", PAIRS[4], {("SAVE {name} AS %1$s IN C:\\temp", "GUARDAR {name} COMO %1$s EN C:\\temp")}),
        ("capitals", ("¿Sí, Straße?", "ﬁn"), {("¿SÍ, STRASSE?", "FIN")}),
        ("fragments", PAIRS[0], {("The cat drank the milk", "El gato bebió la leche"),
                                 ("the cat drank the milk", "el gato bebió la leche")}),
        ("fragments", PAIRS[3], {PAIRS[3], ("what is the price of 25 apples?", "¿cuál es el precio de 25 manzanas?")}),
        ("fragments", PAIRS[2], {PAIRS[2]}),  # I stays a capital
        ("fragments", ("At 5 p.m.", "A las 5 p.m."), {("At 5 p.m.", "A las 5 p.m.")}),
        ("title_case", PAIRS[3], {("What Is The Price Of 25 Apples?", tgt)
                                  for tgt in (PAIRS[3][1], "¿Cuál Es El Precio De 25 Manzanas?")}),
        ("repeats", ("Go!", "Ve."), {(("Go! " * n)[:-1], ("Ve. " * n)[:-1]) for n in (2, 3, 4, 6, 8, 12, 20, 30)}),
        ("repeats", ("It's 1, 2. 3.", "x"),
         {("It's 1, 2. 3.", "x"), *(("It's " * n + "1, 2. 3.", "x") for n in range(3, 9))}),
        ("joined", ("Yes.", "Sí."), {("Yes. The cat drank the milk.", "Sí. El gato bebió la leche.")}),
        ("dates", ("OK", "好"), {("OK", "好")}),
    ],
)  # fmt: skip
def test_forms(family: str, pair: tuple[str, str], expected: set[tuple[str, str]]):
    codes = ("en", "zh") if pair[1] == "好" else ("en", "es")
    assert forms((normalise(pair[0]), normalise(pair[1])), family, codes=codes) == expected


def test_quotes_are_those_of_each_language_and_ellipses_and_apostrophes_are_curly():
    assert {(src[7], tgt[5]) for src, tgt in forms(PAIRS[2], "typography")} == {("“", "“"), ("‘", "«")}
    assert all("10:45… " in src and "10:45… " in tgt for src, tgt in forms(PAIRS[2], "typography"))
    assert all("didn’t" in src for src, _ in forms(PAIRS[1], "typography"))


def test_a_name_is_replaced_only_where_both_sides_have_it_and_a_number_by_one_of_its_kind():
    assert all("Boston" not in src + tgt for src, tgt in forms(PAIRS[1], "names"))
    assert all(tgt.endswith(f" {src.split()[-1]}") for src, tgt in forms(("He sees Boston", "Ve Boston"), "names"))
    assert forms(("He sees London", "Ve Londres"), "names") == {("He sees London", "Ve Londres")}
    times = {src.partition(" at ")[2][:5] for src, _ in forms(PAIRS[2], "numbers")}
    assert len(times) > 20
    assert all(10 <= int(time[:2]) < 24 and 10 <= int(time[3:]) < 60 for time in times)
    assert forms(("1 apple", "1 manzana"), "numbers") == {("1 apple", "1 manzana")}
    assert forms(("2 x", "3 x"), "numbers") == {("2 x", "3 x")}


def test_typing_errors_are_in_the_source_alone_one_for_every_ten_words_and_never_in_code_and_names():
    for src, tgt in forms(PAIRS[4], "typos"):
        assert (tgt, src.split()[1:4:2]) == (PAIRS[4][1], ["{name}", "%1$s"])
    assert all(" Boston," in src for src, _ in forms(PAIRS[1], "typos"))
    long = ("mitten " * 35 + "12 345").strip(), "x"
    assert {sum(word != "mitten" for word in src.split()) for src, _ in forms(long, "typos")} == {2 + 4}


@pytest.mark.parametrize("text", SCRIPTS)
@pytest.mark.parametrize("codes", [("zh", "hi"), ("tr", "el")])
def test_texts_of_any_script_keep_their_characters(text: str, codes: tuple[str, str]):
    plain = Counter(normalise(text).casefold())
    for src, tgt in forms((text, text), *FAMILIES, codes=codes, count=300):
        lost = plain - Counter(tgt.casefold())
        assert not {letter for letter in lost if letter.isalnum()}, tgt
        assert not any(combining(side[0]) for side in (src, tgt))
        if text.upper() == text.lower():  # without capitals, and so without typing errors
            assert not plain - Counter(src.casefold() + ".।。")


@pytest.mark.parametrize("tag", ["<bt>", "»es"])
def test_symbols_of_the_tokenizer_stay_first_and_as_they_are(tag: str):
    tagged = forms((f"{tag} {PAIRS[0][0]}", PAIRS[0][1]), *FAMILIES, count=500)
    assert len(tagged) > 100
    assert {src.split()[0] for src, _ in tagged} == {tag}
    assert forms((f"A {tag} b.", "c"), *FAMILIES) == {(f"A {tag} b.", "c")}
