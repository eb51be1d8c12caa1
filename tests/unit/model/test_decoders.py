"""The decoders for search: rows that fork and end, limited vocabularies, ensembles."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from seq2seq.model.decoders import EnsembleDecoder, TextbookDecoder, decoder_for_search
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.ensemble import Ensemble
from seq2seq.text.tokenizer import PAD
from tests.unit.model.models import FORKING, STYLES, V, make_recurrent, make_transformer, sources, token_ids

KINDS: dict[str, Any] = {name: lambda style=style: make_transformer(scale=4, **style) for name, style in STYLES.items()}
KINDS |= {"bias on the logits": lambda: make_transformer(scale=4, output_bias=True)}
KINDS |= {"recurrent": make_recurrent, "recurrent, no attention": lambda: make_recurrent(attention="none")}


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> EncoderDecoder:
    return KINDS[request.param]()


def decode_alone(model: EncoderDecoder, source: torch.Tensor, prefix: torch.Tensor) -> torch.Tensor:
    """Return the logits after a prefix, from an unpadded batch of one sentence."""
    return model.decode(prefix[None], model.encode(source[source != PAD][None]))[0][0, -1]


@pytest.mark.parametrize("reorders", [1, 3])
def test_every_row_continues_its_own_past_whatever_their_number(model: EncoderDecoder, reorders: int) -> None:
    """With reorders=3, two reorderings follow each other before each step."""
    decoder, src, prefixes = TextbookDecoder(model), sources(), token_ids(4, 1)
    owners = [0, 1, 2, 3]
    with torch.no_grad():
        _, state = decoder.step(prefixes[:, 0], decoder.encode(src))
        for step, (rows, counts) in enumerate(FORKING, 1):
            owners, prefixes = [owners[row] for row in rows], prefixes[rows]
            state = state.reorder(torch.tensor(rows), counts)
            if step % reorders:
                continue
            last = token_ids(len(rows), 1)
            prefixes = torch.cat((prefixes, last), 1)
            logits, state = decoder.step(last[:, 0], state)
            expected = [decode_alone(model, src[row], prefix) for row, prefix in zip(owners, prefixes, strict=True)]
            assert_close(logits, torch.stack(expected), atol=1e-5, rtol=1e-5)
    assert len(state.inner.memory_mask) == 1


def test_rows_of_a_sentence_share_its_memory(model: EncoderDecoder) -> None:
    decoder, src = TextbookDecoder(model), sources()
    with torch.no_grad():
        _, before = decoder.step(torch.tensor([4, 5, 6, 7]), decoder.encode(src))
        after = before.reorder(torch.tensor([0, 0, 1, 2, 2, 2, 3]), [2, 1, 3, 1])
        dropped = after.reorder(torch.tensor([0, 1, 5, 6]), [2, 0, 1, 1])
    assert after.inner.memory is before.inner.memory
    assert len(after.inner.memory_mask) == 4
    assert len(dropped.inner.memory_mask) == 3
    if dropped.inner.memory is not None:
        memory = dropped.inner.memory if isinstance(dropped.inner.memory, tuple) else [dropped.inner.memory]
        assert {(len(one.keys), len(one.values)) for one in memory} == {(3, 3)}


def test_a_state_stays_as_it_was_when_others_continue_from_it(model: EncoderDecoder) -> None:
    decoder, src, first = TextbookDecoder(model), sources(), torch.tensor([4, 5, 6, 7])
    with torch.no_grad():
        _, state = decoder.step(first, decoder.encode(src))
        expected, _ = decoder.step(first, state)
        decoder.step(torch.tensor([8]), state.reorder(torch.tensor([3]), [0, 0, 0, 1]))
        assert torch.equal(decoder.step(first, state)[0], expected)


def test_a_limited_decoder_reads_and_predicts_indices(model: EncoderDecoder) -> None:
    ids, src = torch.tensor([0, 3, 5, 8, 13, 21]), sources()
    decoder, last = TextbookDecoder(model), torch.tensor([2, 5, 3, 4])
    limited = decoder.limited_to(ids)
    with torch.no_grad():
        logits, _ = limited.step(last, limited.encode(src))
        assert_close(logits, decoder.step(ids[last], decoder.encode(src))[0][:, ids])


def test_an_ensembles_decoder_predicts_the_mean_of_its_members_in_every_row() -> None:
    models = [make_transformer(scale=4), make_transformer(scale=4, num_decoder_layers=1), make_recurrent()]
    decoder, src = decoder_for_search(Ensemble(models), torch.float32, "off"), sources()
    prefixes, owners = torch.tensor([[4], [5], [6], [7]]), torch.arange(4)
    assert isinstance(decoder, EnsembleDecoder)
    with torch.no_grad():
        _, state = decoder.step(prefixes[:, 0], decoder.encode(src))
        for rows, counts in FORKING:
            last = token_ids(len(rows), 1)
            prefixes, owners = torch.cat((prefixes[rows], last), 1), owners[rows]
            logits, state = decoder.step(last[:, 0], state.reorder(torch.tensor(rows), counts))
            expected = Ensemble(models).predict(src[owners], prefixes)[:, -1]
            assert_close(logits, expected, atol=1e-5, rtol=1e-5)
        limited = decoder.limited_to(torch.arange(V - 1))
        assert_close(limited.step(torch.tensor([4]), limited.encode(src[:1]))[0].exp().sum(-1), torch.ones(1))
