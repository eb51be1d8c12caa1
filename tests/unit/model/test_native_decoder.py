"""The compiled decoder for search: equal to the textbook, its arithmetic, its compilation, and what it refuses."""

import math
import pickle
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from seq2seq.model import compiling, native
from seq2seq.model.compiling import load_library
from seq2seq.model.decoders import Ensemble, TextbookDecoder, decoder_for_search
from seq2seq.model.native import NativeDecoder, NativeState
from seq2seq.model.transformer import Transformer
from seq2seq.search.driver import best_next
from tests.refusing import refuses
from tests.thin import thin
from tests.unit.model import models
from tests.unit.model.models import FIRST, FORKING, V, make_recurrent, make_transformer, sources, token_ids
from tests.unit.searches import NEEDS_COMPILER

STYLES: dict[str, dict[str, Any]] = {
    **models.STYLES,
    "pre-norm, no positions": {"norm_position": "pre", "positions": "none"},
    "no causal mask": {"decoder_mask": "none"},
    "no cross-attention": {"cross_attention": "none"},
    "swish, bias on the logits": {"activation": "swish", "output_bias": True},
    "gelu, embeddings as they are": {"activation": "gelu", "scale_embedding": False},
    "deep decoder": {"num_encoder_layers": 1, "num_decoder_layers": 3},
}


def make(**changes: Any) -> Transformer:
    return make_transformer(scale=4, **{"d_model": 16, "num_heads": 2, "d_ff": 32, **changes})


@pytest.fixture(params=thin(STYLES, ("modern", "no cross-attention", "swish, bias on the logits", "deep decoder")))
def model(request: pytest.FixtureRequest) -> Transformer:
    return make(**STYLES[request.param])


def require_equal_steps(model: Transformer, steps: Sequence[list[list[int]]]) -> NativeState:
    """Take a first step and the given steps with the compiled decoder and the textbook; return the last state."""
    compiled, textbook, src = NativeDecoder(model), TextbookDecoder(model), sources()
    with torch.no_grad():
        _, state = compiled.step(FIRST, compiled.encode(src))
        _, expected_state = textbook.step(FIRST, textbook.encode(src))
        for lines in steps:
            rows = torch.tensor(lines)
            last = token_ids(1, rows.numel())[0]
            logits, state = compiled.step(last, state.reorder(rows))
            expected, expected_state = textbook.step(last, expected_state.reorder(rows))
            assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    return state


@torch.no_grad()
def first_step(decoder: Any, src: Tensor, last: Tensor = FIRST) -> Tensor:
    return decoder.step(last, decoder.encode(src))[0]


@NEEDS_COMPILER
def test_every_step_equals_the_textbooks_whatever_rows_continue(model, monkeypatch):
    require_equal_steps(model, FORKING)
    require_equal_steps(model, [[[0], [1], [3]], [[0], [2]], [[1, 1]]])
    monkeypatch.setattr(native, "SPARE_STEPS", 2)  # slots of dropped rows must soon be used again
    forks = [[[0, 0], [1, 1], [2, 2], [3, 3]]]
    state = require_equal_steps(model, forks + [[[1, 1], [2, 3], [5, 4], [6, 6]]] * 8)
    assert state.used < 8 * 10


@NEEDS_COMPILER
def test_a_limited_decoder_reads_and_predicts_indices(model: Transformer) -> None:
    ids, last = torch.tensor([0, 3, 5, 8, 13, 21]), torch.tensor([2, 5, 3, 4])
    decoder, src = NativeDecoder(model), sources()
    assert_close(first_step(decoder.limited_to(ids), src, last), first_step(decoder, src, ids[last])[:, ids])


@NEEDS_COMPILER
@pytest.mark.parametrize("width", [16, 48, 272])
def test_compiled_products_take_any_number_of_rows_and_outputs(width: int) -> None:
    model = make(d_model=width, d_ff=50, num_encoder_layers=1)
    decoder, textbook = NativeDecoder(model), TextbookDecoder(model)
    for rows in (*range(1, 14), 160):
        src, last = token_ids(rows, 3), token_ids(1, rows)[0]
        expected = first_step(textbook, src, last)
        assert_close(first_step(decoder, src, last), expected, atol=1e-5 * width, rtol=1e-4)


@NEEDS_COMPILER
def test_exponentials_are_exact_to_float32() -> None:
    """With -fassociative-math, the relative error was 2.9e-7, and 3.7e-6 without fused multiply-add."""
    exponents, most = torch.linspace(-87, 0, 100_000) + 3, 3.0
    results, differences = exponents.clone(), (exponents - most).tolist()
    total = load_library().exponentials(results.data_ptr(), len(results), most)
    expected = torch.tensor([math.exp(x) for x in differences], dtype=torch.double)
    assert ((results.double() - expected) / expected).abs().max() < 2e-7
    assert total == pytest.approx(expected.sum().item(), rel=1e-6)


@NEEDS_COMPILER
@pytest.mark.parametrize("size", [7, 64, 1000])
@pytest.mark.parametrize("count", [1, 10, 65])
def test_compiled_code_finds_the_best_next_tokens(size: int, count: int) -> None:
    logits, forbidden = 3 * torch.randn(9, size), torch.rand(9, size) < 0.2
    logits[2], logits[3, 6:], logits[4, :4], logits[5, 1] = torch.arange(size), -torch.inf, 30, torch.nan
    expected = best_next(logits, forbidden, count)
    values, tokens = NativeDecoder(make()).best_next(logits, forbidden, count)
    assert values[:, 0].isnan().tolist() == [row == 5 for row in range(9)]
    assert not values[5, 1:].isfinite().any()
    values[5] = expected[0][5] = -torch.inf
    assert_close(values, expected[0], atol=1e-5, rtol=1e-6)
    is_possible = expected[0] > -torch.inf
    is_possible[4] = False  # equal ones may come in any order
    assert torch.equal(tokens[is_possible], expected[1][is_possible])
    assert tokens.min() >= 0
    assert tokens.max() < size


@NEEDS_COMPILER
@pytest.mark.parametrize("name", ["0.feed_forward.up.weight", "1.self_attention.v_proj.bias"])
def test_a_model_that_gives_nan_gives_nan_compiled(name: str) -> None:
    model = make()
    model.get_parameter(f"decoder_layers.{name}").data.fill_(torch.nan)
    assert first_step(NativeDecoder(model), sources()).isnan().all()


@NEEDS_COMPILER
def test_processes_that_get_a_decoder_share_its_weights_and_compute_the_same(model: Transformer) -> None:
    decoder, src = NativeDecoder(model), sources()
    expected = first_step(decoder, src)
    received = pickle.loads(ForkingPickler.dumps(decoder))  # as a worker process gets it
    for same in (decoder, received):
        assert torch.equal(first_step(same, src), expected)
    for tensor in (decoder.output.weight, decoder.layers[-1][1][0].weight):
        tensor.zero_()
    assert not received.output.weight.any()
    assert not received.layers[-1][1][0].weight.any()


@NEEDS_COMPILER
def test_a_decoder_computes_the_same_after_its_model_is_shared() -> None:
    model, src = make(), sources()
    decoder = NativeDecoder(model)
    expected = first_step(decoder, src)
    model.share_memory()
    assert torch.equal(first_step(decoder, src), expected)


@NEEDS_COMPILER
def test_threads_share_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    src, last, forbidden = token_ids(50, 6), token_ids(1, 50)[0], torch.rand(50, V) < 0.1
    decoder, results = NativeDecoder(make()), []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        with torch.no_grad():
            _, state = decoder.step(last, decoder.encode(src))
            logits, _ = decoder.step(last, state)
        results.append((logits, *decoder.best_next(logits, forbidden, 4)))
    assert all(torch.equal(alone, shared) for alone, shared in zip(*results, strict=True))


@NEEDS_COMPILER
def test_the_choice_decides_what_searches_an_unchanged_transformer() -> None:
    kinds = [type(decoder_for_search(make(), torch.float32, compiles)) for compiles in ("auto", "on", "off")]
    assert kinds == [NativeDecoder, NativeDecoder, TextbookDecoder]
    decoder: Any = decoder_for_search(Ensemble([make(), make_recurrent()]), torch.float32, "auto")
    assert [type(member) for member in decoder.members] == [NativeDecoder, TextbookDecoder]


def wrapped(path: str) -> Transformer:
    model = make()
    model.set_submodule(path, nn.Sequential(model.get_submodule(path)))
    return model


def with_another_layer() -> Transformer:
    model = make()
    changed: Any = model.decoder_layers[1]
    changed.__class__ = type("Changed", (type(changed),), {})
    return model


WRAPPED = ("self_attention.q_proj", "cross_attention.q_proj", "feed_forward", "cross_residual.norm")
OTHERS: dict[str, tuple[Callable[[], Any], torch.dtype, str]] = {
    "LSTM": (make_recurrent, torch.float32, "Transformers, and this model is none"),
    "bfloat16": (make, torch.bfloat16, "the CPU in float32"),
    "weights in float64": (lambda: make().double(), torch.float32, "the CPU in float32"),
    "ablated attention": (lambda: make(relevance="unscaled"), torch.float32, "unchanged layers"),
    "layer": (with_another_layer, torch.float32, "unchanged layers"),
    **{path: (partial(wrapped, f"decoder_layers.1.{path}"), torch.float32, "unchanged layers") for path in WRAPPED},
}


@NEEDS_COMPILER
@pytest.mark.parametrize("name", OTHERS)
def test_models_that_the_compiled_step_does_not_compute_are_searched_by_the_textbook(name: str) -> None:
    make_model, dtype, message = OTHERS[name]
    refuses(f"^--compile on is for {message}.*: leave it out$", decoder_for_search, make_model(), dtype, "on")
    model, src = make_model(), sources()
    decoder = decoder_for_search(model, dtype, "auto")
    assert isinstance(decoder, TextbookDecoder)
    with torch.no_grad(), torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        expected = model.decode(FIRST[:, None], model.encode(src))[0][:, 0]
        assert_close(decoder.step(FIRST, decoder.encode(src))[0], expected, check_dtype=False)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Begin without a compiled library; the cache is the returned folder's `cache`."""
    monkeypatch.setenv("SEQ2SEQ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compiling, "library_or_error", compiling.library_or_error.__wrapped__)
    return tmp_path


@pytest.fixture(scope="module")
def library() -> str:
    """The path of this session's library."""
    return load_library()._name


@pytest.fixture
def compiler(library: str, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let a script stand in for `cc`: it copies this session's library, and writes its arguments to `calls`."""
    cc, calls = empty_cache / "cc", empty_cache / "calls"
    loop = f'while [ $# -gt 1 ]; do [ "$1" != -o ] || /bin/cp {library} "$2"; shift; done'
    cc.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n{loop}\n')
    cc.chmod(0o755)
    monkeypatch.setenv("PATH", str(empty_cache))
    monkeypatch.delenv("CC", raising=False)
    return cc


@NEEDS_COMPILER
def test_compiled_code_is_kept_in_the_cache_and_damaged_code_is_compiled_again(compiler, capfd):
    cache = compiler.parent / "cache"
    message = "compiling the search for this processor: once, a few seconds\n"
    for expected in (message, "", ""):
        NativeDecoder(make())
        assert capfd.readouterr().err == expected
    for content in (b"", b"no library"):
        (library,) = (path for path in cache.iterdir() if len(path.read_bytes()) > 1000)
        library.unlink()  # another file: this process has loaded the first one
        library.write_bytes(content)
        NativeDecoder(make())
        assert capfd.readouterr().err == message


@NEEDS_COMPILER
def test_the_compiler_may_have_arguments_or_no_name(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("", "cc -O2"):
        monkeypatch.setenv("CC", name)
        NativeDecoder(make())
    assert len(list((compiler.parent / "cache").iterdir())) == 2
    calls = [call for call in (compiler.parent / "calls").read_text().splitlines() if "-shared" in call]
    assert [call.startswith("-O2 ") for call in calls] == [False, True]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("#!/bin/sh\necho bad flag >&2; exit 1", "broken: bad flag"),
        ("#!/bin/sh\nexit 0", "cannot open shared object file"),
        ("no program", "Exec format error"),
    ],
)
def test_a_compiler_that_fails_is_named_in_one_line(empty_cache, monkeypatch, script, message):
    compiler = empty_cache / "broken"
    compiler.write_text(script)
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    refuses(rf"^no compiled code \(.*{message}.*or use --compile off$", decoder_for_search, make(), torch.float32, "on")


@NEEDS_COMPILER
def test_a_cache_that_cannot_be_written_is_named_in_one_line(empty_cache: Path) -> None:
    (empty_cache / "cache").write_text("a file")
    message = r"^no compiled code \(.*cache.*\(SEQ2SEQ_CACHE\)"
    refuses(message, decoder_for_search, make(), torch.float32, "on")


@NEEDS_COMPILER
def test_pytorchs_default_precision_changes_no_compiled_step() -> None:
    decoder, src = NativeDecoder(make()), sources()
    results = []
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            logits = first_step(decoder, src)
            results.append((logits, *decoder.best_next(logits, torch.zeros_like(logits, dtype=torch.bool), 3)))
        finally:
            torch.set_default_dtype(torch.float32)
    assert all(torch.equal(expected, other) for expected, other in zip(*results, strict=True))


@pytest.mark.parametrize("name", ["'", " ", "no-such-compiler"])
def test_a_useless_name_of_a_compiler_leaves_the_textbook(empty_cache, monkeypatch, capfd, name):
    monkeypatch.setenv("CC", name)
    monkeypatch.setenv("PATH", str(empty_cache))
    assert isinstance(decoder_for_search(make(), torch.float32, "auto"), TextbookDecoder)
    assert capfd.readouterr().err == ""
    refuses(
        r"^no compiled code \((.*No such file|No closing quotation)", decoder_for_search, make(), torch.float32, "on"
    )
