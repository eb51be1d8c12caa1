"""The tokenizer loses nothing, is reproducible, and says what is wrong."""

import hashlib
import pickle
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st

from seq2seq.errors import UserError
from seq2seq.settings.data import TokenizerConfig
from seq2seq.text.normalise import normalise
from seq2seq.text.tokenizer import BOS, EOS, PAD, SPECIAL_IDS, UNK, Tokenizer, resolve_auto, train_tokenizer
from seq2seq.text.vocabulary import load_tokenizers
from tests.refusing import refuses


def make_texts() -> list[str]:
    """600 sentences of made-up words, in which a vocabulary can find a few hundred subwords."""
    rng = random.Random(5)
    syllables = [consonant + vowel for consonant in "bcdfglmnñprst" for vowel in "aeiouáé"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(300)]
    frames = ("¿{}?", "¡{}!", "{}.", "{}, 5 €.", "«{}»")
    return [rng.choice(frames).format(" ".join(rng.choices(words, k=rng.randint(2, 9)))) for _ in range(600)]


TEXTS = make_texts()


def config(**changes: object) -> TokenizerConfig:
    return TokenizerConfig(**({"vocab_size": 380} | changes))  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return train_tokenizer(TEXTS, config(type=request.param))


@given(text=st.text(st.characters(codec="utf-8") | st.sampled_from("¿¡ñ€ü😀▁ \n")))
@example("😀 👨‍👩‍👧, 日本語")
@example("<s> </s> <unk> <pad> <0x41> ▁a")
@example("")
@example("  nin\u0303o\t")
def test_decoding_an_encoding_gives_the_normalised_text_whatever_it_looks_like(tokenizer: Tokenizer, text: str):
    (ids,) = tokenizer.encode([text])
    assert tokenizer.decode([ids, [BOS, *ids, EOS, PAD, PAD]]) == [normalise(text)] * 2
    assert not set(ids) & set(SPECIAL_IDS)


def test_a_decoded_text_is_one_line_even_if_its_bytes_are_a_line_end(tokenizer: Tokenizer):
    line_end = next(i for i in range(tokenizer.vocab_size) if tokenizer.tokens([i]) == ["<0x0A>"])
    word = tokenizer.encode(["pan."])[0]
    assert tokenizer.decode([[*word, line_end, *word]]) == ["pan. pan."]


def test_ids_have_subwords_and_the_vocabulary_the_size_asked_for(tokenizer: Tokenizer):
    assert tokenizer.tokens([PAD, UNK, BOS, EOS]) == ["<pad>", "<unk>", "<s>", "</s>"]
    assert "".join(tokenizer.tokens(tokenizer.encode(["la casa"])[0])) == "▁la▁casa"
    assert tokenizer.encode([]) == tokenizer.decode([]) == []
    assert tokenizer.vocab_size == 380
    assert tokenizer.user_symbols == {}
    with pytest.raises(IndexError):
        tokenizer.decode([[380]])


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_the_same_texts_give_the_same_bytes_in_every_process(kind: str):
    """SentencePiece's own sampling repeats itself within a process only."""
    settings = config(type=kind, input_sentence_size=500)
    program = (
        "import hashlib, sys, pickle\n"
        "from seq2seq.text.tokenizer import train_tokenizer\n"
        "print(hashlib.sha256(train_tokenizer(*pickle.load(sys.stdin.buffer)).model_bytes).hexdigest())\n"
    )
    command = [sys.executable, "-c", program]
    output = subprocess.check_output(command, input=pickle.dumps((TEXTS, settings)))
    assert output.decode().strip() == hashlib.sha256(train_tokenizer(TEXTS, settings).model_bytes).hexdigest()


def test_only_as_many_sentences_as_set_are_learnt_from():
    texts = ["日本", *TEXTS]
    everything = train_tokenizer(texts, config(vocab_size=330, character_coverage=1.0))
    sampled = train_tokenizer(texts, config(vocab_size=330, character_coverage=1.0, input_sentence_size=150))
    assert "日" in "".join(everything.tokens(everything.encode(["日本"])[0]))
    assert "日" not in "".join(sampled.tokens(sampled.encode(["日本"])[0]))


def test_without_byte_fallback_an_unseen_character_is_unknown():
    tokenizer = train_tokenizer(TEXTS, config(byte_fallback=False, vocab_size=100))
    assert UNK in tokenizer.encode(["日"])[0]


def test_a_sentence_of_ten_thousand_words_is_learnt_from():
    tokenizer = train_tokenizer([" ".join(TEXTS)], config())
    assert tokenizer.decode(tokenizer.encode([" ".join(TEXTS)])) == [" ".join(TEXTS)]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_vocabulary_too_large_or_too_small_names_the_setting_and_a_size_that_works(kind: str):
    for size, message in (
        (90_000, r"larger than .*: set it to at most (\d+)$"),
        (20, r"does not .*: set it to at least (\d+) or lower"),
    ):
        with pytest.raises(UserError, match=rf"^tokenizer.vocab_size={size} (is )?{message}") as caught:
            train_tokenizer(TEXTS, config(type=kind, vocab_size=size))
        match = re.search(r"at (?:most|least) (\d+)", str(caught.value))
        assert match is not None
        nearest = int(match[1])
        assert train_tokenizer(TEXTS, config(type=kind, vocab_size=nearest)).vocab_size == nearest
        if size > nearest:
            refuses(f"at most {nearest}$", train_tokenizer, TEXTS, config(type=kind, vocab_size=nearest + 1))


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_required_characters_and_digits_are_subwords_whatever_the_text_has(kind: str):
    tokenizer = train_tokenizer(TEXTS, config(type=kind, required_characters="→ſŁ7"))
    assert all(len(ids) <= 2 for ids in tokenizer.encode(list("→Ł7")))  # the character, perhaps after a space
    years = ["en 1998, 1998 y 19 1998 19"] * 99
    for splits in (True, False):
        learnt = train_tokenizer(TEXTS + years, config(type=kind, split_digits=splits, vocab_size=450))
        tokens = learnt.tokens(range(learnt.vocab_size))
        assert any(len(re.sub(r"[^0-9]", "", token)) > 1 and "<" not in token for token in tokens) is not splits


def test_only_a_large_vocabulary_has_masks_and_the_characters_of_keyboards_and_europe_by_itself():
    small, large = resolve_auto(config(vocab_size=3999)), resolve_auto(config(vocab_size=4000))
    assert (small.required_characters, small.masks, large.masks) == ("", 0, 8)
    assert set("09azAZ@~€“”…—•→ñÑØøŁłŠšßżŐğİșœ½²ºª™✓") <= set(large.required_characters)
    assert all(normalise(character) == character for character in large.required_characters)
    assert resolve_auto(config(vocab_size=9000, masks=0, required_characters="")).required_characters == ""


@pytest.mark.parametrize("characters", ["aa", "a b", "▁", "e\u0301"])
def test_required_characters_are_distinct_normal_and_no_space(characters: str):
    refuses(r"^tokenizer\.required_characters=", config, required_characters=characters)


def test_no_text_to_learn_from_is_refused():
    refuses("no text to train a tokenizer on", train_tokenizer, ["", ""], config())


def test_an_error_while_reading_the_texts_comes_through_unchanged():
    def texts() -> Iterator[str]:
        yield from TEXTS
        raise UserError("corpus.tsv:7 has 1 field")

    refuses(r"^corpus.tsv:7 has 1 field$", train_tokenizer, texts(), config())


def test_a_missing_or_damaged_model_is_one_line(tokenizer: Tokenizer, tmp_path: Path):
    path = tmp_path / "tokenizer.model"
    refuses(r"tokenizer.model cannot be read \(No such file", load_tokenizers, path)
    for keep in (0, 3, 2000):
        path.write_bytes(tokenizer.model_bytes[:keep])
        refuses(f"tokenizer.model is damaged or no SentencePiece model \\({keep} bytes\\)", load_tokenizers, path)


def test_a_model_with_other_special_ids_is_refused(tmp_path: Path):
    sentencepiece.SentencePieceTrainer.train(  # pyright: ignore[reportAttributeAccessIssue]
        sentence_iterator=iter(TEXTS), model_prefix=str(tmp_path / "foreign"), vocab_size=100, minloglevel=2
    )
    refuses(r"foreign.model has pad_id=-1, expected 0: retrain", load_tokenizers, tmp_path / "foreign.model")


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_user_symbol_is_one_subword_in_any_context(kind: str):
    tokenizer = train_tokenizer(TEXTS, config(type=kind, user_symbols=["<bt>"]))
    assert list(tokenizer.user_symbols) == ["<bt>"]
    tag = tokenizer.user_symbols["<bt>"]
    for text in ("<bt> ¿ñandú?", "a<bt>b"):
        (ids,) = tokenizer.encode([text])
        assert ids.count(tag) == 1
        assert tokenizer.decode([ids]) == [text]
    assert not any(tag in ids for ids in tokenizer.encode([*TEXTS, "< bt >", "bt"]))


@pytest.mark.parametrize("symbol", ["", "two words", "a,b", "▁x", "e\u0301", "<0x41>"])
def test_a_user_symbol_is_one_word(symbol: str):
    with pytest.raises(UserError, match=r"a symbol is one word in Unicode.s form NFC, without comma or ▁, such as <b"):
        config(user_symbols=[symbol])
