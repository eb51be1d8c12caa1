"""A masked string of the source is in the translation, exactly, whatever the model does with its symbol."""

from typing import Any

import pytest
import torch
from echo import TEXTS, EchoModel

from seq2seq.glossary import Glossary
from seq2seq.interface import Hypothesis, Text
from seq2seq.model.transformer import Transformer
from seq2seq.settings.data import TokenizerConfig
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import train_tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translator import Translator

LINES = [
    "Ella ve https://x.org/a  ya.",
    "⟨3⟩ {name} Ж Ella ve `a  b`.",
    "{a} {a} ve, {a}!",
    "😀",
    "Ella ve",
    "",
    "Ella ve {a}, {b}, {c}, {d}, {e} ya.",
    "niños " * 60 + "https://x.org/ñ " * 3,
]


class ForgetfulModel(EchoModel):
    """Translates a text into itself without the symbols of masks, which all have the second-best score."""

    forgotten: tuple[int, ...] = ()

    def encode(self, src):
        kept = [[token for token in row if token not in self.forgotten] for row in src.tolist()]
        width = max(map(len, kept))
        return super().encode(torch.tensor([row + [0] * (width - len(row)) for row in kept]))


class Copying:
    """An engine of another kind, which knows no phrases: translates a text into itself without symbols."""

    def __init__(self, forgotten):
        self.forgotten = forgotten

    def search(self, sources, settings, n_best, banned=(), *, on_step=None):
        for index, source in enumerate(sources):
            ids = [token for token in source.ids if token not in self.forgotten]
            yield [(index, [Hypothesis(ids, 0.0, 0.0)])]


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    config = TokenizerConfig(vocab_size=304, masks=4)
    return Tokenizers.joint(train_tokenizer([f"{a} {b}" for a in TEXTS for b in TEXTS], config))


def translator(tokenizers: Tokenizers, kind: type, **search: Any) -> Translator:
    model = Copying(tokenizers.target.mask_ids) if kind is Copying else kind(tokenizers.target.vocab_size)
    if isinstance(model, ForgetfulModel):
        model.forgotten = tuple(tokenizers.target.mask_ids)
    settings: dict[str, Any] = {"beam": 3, **search}
    return Translator(model, tokenizers, search=SearchConfig(**settings), trained_length=60)


@pytest.mark.parametrize("search", [{}, {"beam": 1}, {"early_stopping": True}, {"sampling": True}], ids=str)
@pytest.mark.parametrize("kind", [EchoModel, ForgetfulModel, Copying])
def test_every_masked_string_is_in_the_translation(tokenizers, kind, search):
    for line, translation in zip(LINES, translator(tokenizers, kind, **search).translate(LINES), strict=True):
        strings = tokenizers.masker.mask(line).strings
        assert all(translation.count(string) >= strings.count(string) for string in strings), (line, translation)
        assert "⟨" not in translation.replace("⟨3⟩", "", 1)
        if kind is EchoModel:
            assert translation == (line if "`" in line else " ".join(line.split()))


def test_all_of_the_n_best_have_the_strings(tokenizers):
    for translations in translator(tokenizers, ForgetfulModel).translate_nbest(["Ella ve {a} ya.", "{b} ve"], 3):
        assert len(translations) == 3
        assert all("{" in translation.text for translation in translations)


def test_a_prefix_and_a_phrase_may_contain_a_string(tokenizers):
    echo = translator(tokenizers, EchoModel)
    text = Text("Ella ve x.org ya.", prefix="Un x.org", phrases=["x.org"])
    (translation,) = echo.translate([text])
    assert translation.startswith("Un x.org")
    assert translation.count("x.org") == 1


def test_a_term_within_a_string_is_no_term(tokenizers):
    echo, glossary = translator(tokenizers, EchoModel), Glossary({"milk": "leche"})
    assert echo.translate(["Ella ve https://milk.org/milk"], glossary=glossary) == ["Ella ve https://milk.org/milk"]
    assert "leche" in echo.translate(["Ella has milk."], glossary=glossary)[0]


def test_a_given_translation_is_scored_with_symbols_and_aligned_by_the_words_of_the_texts(tokenizers):
    model = Transformer(ModelConfig(d_model=8, num_heads=2, d_ff=8), tokenizers.target.vocab_size)
    reader, line = Translator(model, tokenizers, trained_length=60), "Ella ve `a b  c` la {x}."
    (score,) = reader.score([line], [line], align=True)
    assert [token for token in score.tokens if "⟨" in token] == ["⟨1⟩", "⟨2⟩"]
    assert score.alignment is not None
    assert {word for _, word in score.alignment} <= {0, 1, 2, 5, 6}
