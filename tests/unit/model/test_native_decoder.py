"""The compiled decoder for search: what it computes beside the flat one, how it is compiled, and what it refuses."""

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from seq2seq.errors import UserError
from seq2seq.model import compiling, native
from seq2seq.model.compiling import load_library
from seq2seq.model.decoders import for_search
from seq2seq.model.ensemble import Ensemble
from seq2seq.model.native import NativeDecoder, NativeState
from seq2seq.model.recurrent import Recurrent
from seq2seq.search.step import best_next
from seq2seq.settings.model import ModelConfig
from tests.unit.model.test_flat_decoder import V, make, sources
from tests.unit.searches import NEEDS_COMPILER


@NEEDS_COMPILER
@pytest.mark.parametrize("rows", [*range(1, 14), 160])
@pytest.mark.parametrize("width", [16, 48, 272])
def test_compiled_products_take_any_number_of_rows_and_outputs(rows: int, width: int) -> None:
    model = make(d_model=width, d_ff=50, num_encoder_layers=1)
    decoder, src = NativeDecoder(model), torch.randint(4, V, (rows, 3))
    last = torch.randint(4, V, (rows,))
    with torch.no_grad():
        logits, _ = decoder.step(last, decoder.encode(src))
        expected, _ = model.decode(last[:, None], model.encode(src))
    assert_close(logits, expected[:, 0], atol=1e-5 * width, rtol=1e-4)


@NEEDS_COMPILER
@pytest.mark.parametrize("size", [7, 64, 1000])
@pytest.mark.parametrize("count", [1, 10])
def test_compiled_code_finds_the_best_next_tokens(size: int, count: int) -> None:
    logits, banned = 3 * torch.randn(9, size), torch.tensor([0, 5])
    logits[2], logits[3, 6:], logits[4, :4], logits[5, 1] = torch.arange(size), -torch.inf, 30, torch.nan
    expected = best_next(logits, banned, count)
    values, tokens = NativeDecoder(make()).best_next(logits, banned, count)
    assert not values[5].isfinite().any()
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
    decoder = NativeDecoder(model)
    with torch.no_grad():
        logits, _ = decoder.step(torch.tensor([4, 5, 6, 7]), decoder.encode(sources()))
    assert logits.isnan().all()


@NEEDS_COMPILER
def test_a_compiled_decoder_outlives_that_its_model_is_shared() -> None:
    model, src, last = make(), sources(), torch.tensor([4, 5, 6, 7])
    decoder = NativeDecoder(model)
    with torch.no_grad():
        expected, _ = decoder.step(last, decoder.encode(src))
        model.share_memory()
        assert torch.equal(decoder.step(last, decoder.encode(src))[0], expected)


@NEEDS_COMPILER
def test_a_state_takes_a_token_for_each_of_its_rows() -> None:
    decoder = NativeDecoder(make())
    with torch.no_grad(), pytest.raises(ValueError, match="5 tokens for a state of 4 rows"):
        decoder.step(torch.tensor([4, 5, 6, 7, 8]), decoder.encode(sources()))


@NEEDS_COMPILER
def test_threads_share_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    model, src = make(), torch.randint(4, V, (50, 6))
    decoder, last, banned = NativeDecoder(model), torch.randint(4, V, (50,)), torch.tensor([0, 2])
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        with torch.no_grad():
            state = decoder.encode(src).watching()
            decoder.step(last, state)
            logits, _ = decoder.step(last, state)
        found.append((logits, state.attention, *decoder.best_next(logits, banned, 4)))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@NEEDS_COMPILER
def test_an_ensemble_is_compiled_member_by_member() -> None:
    decoder = for_search(Ensemble([make(), make()]), torch.float32, is_compiled=True)
    with torch.no_grad():
        states = decoder.encode(sources()).states
    assert [type(one) for one in states] == [NativeState, NativeState]


def test_only_transformers_are_compiled_on_the_cpu_in_float32() -> None:
    recurrent = Recurrent(ModelConfig(architecture="recurrent", d_model=16), V)
    is_none, is_bf16 = "is for Transformers, and this model is none", "on the CPU computes in float32 only"
    for model, dtype, told in ((recurrent, torch.float32, is_none), (make(), torch.bfloat16, is_bf16)):
        with pytest.raises(UserError, match=f"--compile {told}: leave it out"):
            for_search(model, dtype, is_compiled=True)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Begin without a compiled library; the cache is this folder."""
    monkeypatch.setenv("SEQ2SEQ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(native, "load_library", load_library.__wrapped__)
    return tmp_path


@NEEDS_COMPILER
def test_compiled_code_is_kept_in_the_cache(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    NativeDecoder(make())
    (kept,) = (empty_cache / "cache").iterdir()
    assert kept.suffix == ".so"
    with monkeypatch.context() as patch:
        patch.setattr(compiling, "_compile", lambda *_: pytest.fail("compiled again"))
        NativeDecoder(make())


@NEEDS_COMPILER
@pytest.mark.parametrize("content", [b"", b"no library"])
def test_damaged_code_in_the_cache_is_compiled_again(empty_cache: Path, content: bytes) -> None:
    NativeDecoder(make())
    (kept,) = (empty_cache / "cache").iterdir()
    kept.unlink()  # another file: this process has loaded the first one
    kept.write_bytes(content)
    NativeDecoder(make())
    assert any(len(path.read_bytes()) > 1000 for path in (empty_cache / "cache").iterdir())


@NEEDS_COMPILER
def test_the_compiler_may_have_arguments_or_no_name(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wanted in ("", "cc -O2"):
        monkeypatch.setenv("CC", wanted)
        NativeDecoder(make())
    assert len(list((empty_cache / "cache").iterdir())) == 2


def test_without_a_compiler_compiling_is_refused(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(UserError, match="--compile needs a C compiler, and there is no no-such-compiler: install gcc"):
        for_search(make(), torch.float32, is_compiled=True)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("#!/bin/sh\necho bad flag >&2; exit 1", "cannot compile .*decoding.c: bad flag: leave out --compile"),
        ("#!/bin/sh\nexit 0", "cannot compile .*decoding.c: it wrote nothing: leave out --compile"),
        ("no program", r"broken cannot be run \(Exec format error\): leave out --compile"),
    ],
)
def test_a_compiler_that_fails_is_told_in_one_line(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch, script: str, told: str
) -> None:
    compiler = empty_cache / "broken"
    compiler.write_text(script)
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(UserError, match=told):
        for_search(make(), torch.float32, is_compiled=True)


@NEEDS_COMPILER
def test_a_cache_that_cannot_be_written_is_told_in_one_line(empty_cache: Path) -> None:
    (empty_cache / "cache").write_text("a file")
    with pytest.raises(UserError, match=r"cannot keep compiled code in .*cache .*: set SEQ2SEQ_CACHE to another"):
        for_search(make(), torch.float32, is_compiled=True)
