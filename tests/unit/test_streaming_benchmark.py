import multiprocessing
from pathlib import Path

import pytest
import torch

from benchmarks import streaming
from benchmarks.streaming import Plan, run
from seq2seq.errors import UserError
from seq2seq.settings.model import ModelConfig

SMALL = ModelConfig(d_model=16, num_heads=2, d_ff=32, num_encoder_layers=1, num_decoder_layers=1)
PLAN = Plan(pairs=3000, streamed=2000, part=1000, rounds=2, batches=2, max_tokens=256, block=500)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from Linux's /proc")
def test_a_small_stream_is_measured_and_nothing_is_left(tmp_path: Path):
    found = run(PLAN, SMALL, 400, torch.device("cpu"), tmp_path)
    assert set(found["updates"]["rates"]) == {"in memory", "streamed"}
    assert all(len(rates) == 2 for rates in found["updates"]["rates"].values())
    assert len(found["stream"]["points"]) == 10
    assert all(point["training_mb"] > 1 and point["reading_mb"] > 1 for point in found["stream"]["points"])
    assert not any(tmp_path.iterdir())
    assert not multiprocessing.active_children()


def test_a_corpus_that_does_not_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(streaming, "_BYTES_A_PAIR", 10**15)
    with pytest.raises(UserError, match="are needed: choose another --folder or fewer --pairs"):
        run(PLAN, SMALL, 400, torch.device("cpu"), tmp_path)
    assert not any(tmp_path.iterdir())
