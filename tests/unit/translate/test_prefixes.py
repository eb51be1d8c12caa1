"""A translation begins with its prefix."""

from dataclasses import replace

import pytest
import torch
from echo import EchoModel, EchoState
from torch import Tensor

from seq2seq.search.shortlist import Shortlist
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import EOS, Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.translator import Translator
from seq2seq.translate.types import Text
from tests.thin import thin
from tests.unit.searches import shortlist_of

KINDS = {
    "greedy": {"beam": 1},
    "beam": {"beam": 4},
    "early stopping": {"beam": 3, "early_stopping": True},
    "sampling": {"sampling": True, "seed": 3},
    "rules": {"beam": 3, "no_repeat_ngram": 3, "min_length": 1},
}
PREFIXES = ["La bola es az", "Un", "¿Qu", "n", "niños", "La le", "x日", "El gato ve la l", "e", "-", "San José, "]


class Repeating(EchoModel):
    """Likes to write one token, and then to end."""

    def __init__(self, vocab_size: int, token: int) -> None:
        super().__init__(vocab_size)
        self.token = token

    def hidden_states(self, tgt_in: Tensor, state: EchoState) -> tuple[Tensor, EchoState]:
        hidden = torch.zeros(len(tgt_in), 1, self.vocab_size)
        hidden[:, 0, EOS] = torch.where(tgt_in[:, 0] == self.token, 60.0, -60.0)
        hidden[:, 0, self.token] = 30.0
        return hidden, replace(state, position=state.position + 1)


def liking(tokenizer: Tokenizer, subword: str, shortlist: Shortlist | None = None) -> Translator:
    (token,) = (number for number in range(tokenizer.vocab_size) if tokenizer.tokens([number]) == [subword])
    model = Repeating(tokenizer.vocab_size, token)
    return Translator(
        model, Tokenizers.joint(tokenizer), search=SearchConfig(beam=4, max_length_offset=20), shortlist=shortlist
    )


@pytest.mark.parametrize("kind", thin(KINDS, ["beam", "sampling"]))
def test_a_prefix_stands_as_it_is_and_the_model_goes_on_after_it(tokenizer: Tokenizer, kind: str) -> None:
    translator = liking(tokenizer, "▁azul")
    for prefix, expected in (
        ("La bola es az", "La bola es az azul"),
        ("La bola es azul", "La bola es azul"),
        ("La bola es ", "La bola es azul"),
        ("La bola es", "La bola es azul"),
        ("", "azul"),
    ):
        assert translator.translate([Text("The ball", prefix)], **KINDS[kind]) == [expected]
    assert liking(tokenizer, "s").translate([Text("The ball", "La bola")], **KINDS[kind]) == ["La bolas"]


@pytest.mark.parametrize("rules", [{"no_repeat_ngram": 1}, {"banned": ["gato"]}, {"banned": ["o", "t", "at"]}], ids=str)
def test_rules_change_no_word_of_a_prefix_not_even_the_last_one(tokenizer, rules):
    prefix = "El gato El gato"
    (translation,) = liking(tokenizer, "▁azul").translate([Text("The cat", prefix)], **rules)
    assert translation.startswith(prefix)


@pytest.mark.parametrize("kind", thin(KINDS, ["beam"]))
def test_a_prefix_fits_into_any_limit(translator, kind):
    texts = [Text("The cat.", prefix) for prefix in PREFIXES]
    for prefix, translation in zip(PREFIXES, translator.translate(texts, max_length=1, **KINDS[kind]), strict=True):
        assert translation.startswith(prefix.strip())


def test_a_shortlist_does_not_keep_a_translation_from_its_prefix(tokenizer, monkeypatch):
    monkeypatch.setattr("seq2seq.search.shortlist.MULTIPLE", 1)
    size = tokenizer.vocab_size
    (azul,) = (number for number in range(size) if tokenizer.tokens([number]) == ["▁azul"])
    for allowed, expected in (([0, 1, 2, 3, azul], "La bola es az azul"), ([0, 1, 2, 3], "La bola es az")):
        shortlist = shortlist_of(allowed, size, Tokenizers.joint(tokenizer).digest)
        translator = liking(tokenizer, "▁azul", shortlist)
        assert translator.translate([Text("The ball", "La bola es az")], max_length=14)[0].startswith(expected)
