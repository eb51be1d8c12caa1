"""The textbook's decoder for search, and ensembles: rows that fork and end, limited vocabularies."""

from collections.abc import Callable
from itertools import chain

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seq2seq.model.decoders import Ensemble, EnsembleDecoder, TextbookDecoder, decoder_for_search
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.text.tokenizer import PAD
from tests.unit.model.models import FIRST, FORKING, STYLES, V, make_recurrent, make_transformer, sources, token_ids

MODELS: dict[str, Callable[[], EncoderDecoder]] = {
    "bias on the logits": lambda: make_transformer(scale=4, output_bias=True),
    "modern": lambda: make_transformer(scale=4, **STYLES["modern"]),
    "recurrent": make_recurrent,
    "recurrent, no attention": lambda: make_recurrent(attention="none"),
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> EncoderDecoder:
    return MODELS[request.param]()


def decode_alone(model: EncoderDecoder, source: Tensor, prefix: Tensor) -> Tensor:
    """Return the logits after a prefix, from an unpadded batch of one sentence."""
    return model.decode(prefix[None], model.encode(source[source != PAD][None]))[0][0, -1]


@torch.no_grad()
@pytest.mark.parametrize("reorders", [1, 3])
def test_every_row_continues_its_own_past_whatever_their_number(model: EncoderDecoder, reorders: int) -> None:
    """With reorders=3, two reorderings follow each other before each step."""
    decoder, src, prefixes, owners = TextbookDecoder(model), sources(), FIRST[:, None], [0, 1, 2, 3]
    _, state = decoder.step(FIRST, decoder.encode(src))
    for step, lines in enumerate(FORKING, 1):
        rows = list(chain(*lines))
        owners, prefixes = [owners[row] for row in rows], prefixes[rows]
        state = state.reorder(torch.tensor(lines))
        if step % reorders:
            continue
        last = token_ids(len(rows), 1)
        prefixes = torch.cat((prefixes, last), 1)
        logits, state = decoder.step(last[:, 0], state)
        expected = [decode_alone(model, src[row], prefix) for row, prefix in zip(owners, prefixes, strict=True)]
        assert_close(logits, torch.stack(expected), atol=1e-5, rtol=1e-5)
    assert len(state.memory_mask) == 1


@torch.no_grad()
def test_a_state_stays_as_it_was_when_others_continue_from_it(model: EncoderDecoder) -> None:
    decoder = TextbookDecoder(model)
    _, state = decoder.step(FIRST, decoder.encode(sources()))
    expected, _ = decoder.step(FIRST, state)
    decoder.step(torch.tensor([8]), state.reorder(torch.tensor([[3]])))
    assert torch.equal(decoder.step(FIRST, state)[0], expected)


@torch.no_grad()
def test_an_ensemble_gives_the_mean_of_its_members_probabilities_and_attention() -> None:
    members = [make_transformer(scale=4, num_decoder_layers=layers).train() for layers in (1, 2)]
    src, tgt_in, ensemble = token_ids(2, 7), token_ids(2, 5), Ensemble(members)
    assert ensemble.eval() is ensemble
    assert not any(member.training for member in members)
    log_probs, attention = ensemble.predict_and_align(src, tgt_in)
    assert_close(ensemble.predict(src, tgt_in), log_probs)
    first, second = (member.predict(src, tgt_in).softmax(-1) for member in members)
    assert_close(log_probs.exp(), (first + second) / 2)
    assert not torch.allclose(first, second, atol=1e-2)
    assert_close(attention, sum(member.predict_and_align(src, tgt_in)[1] for member in members) / 2)
    assert ensemble.can_align
    assert not Ensemble([*members, make_recurrent(attention="none")]).can_align


@torch.no_grad()
def test_an_ensembles_decoder_predicts_the_mean_of_its_members_in_every_row() -> None:
    models = [make_transformer(scale=4), make_transformer(scale=4, num_decoder_layers=1), make_recurrent()]
    decoder, src = decoder_for_search(Ensemble(models), torch.float32, "off"), sources()
    prefixes, owners = FIRST[:, None], torch.arange(4)
    assert isinstance(decoder, EnsembleDecoder)
    _, state = decoder.step(FIRST, decoder.encode(src))
    for lines in FORKING:
        rows = list(chain(*lines))
        last = token_ids(len(rows), 1)
        prefixes, owners = torch.cat((prefixes[rows], last), 1), owners[rows]
        logits, state = decoder.step(last[:, 0], state.reorder(torch.tensor(lines)))
        expected = Ensemble(models).predict(src[owners], prefixes)[:, -1]
        assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    limited = decoder.limited_to(torch.arange(V - 1))
    assert_close(limited.step(torch.tensor([4]), limited.encode(src[:1]))[0].exp().sum(-1), torch.ones(1))
