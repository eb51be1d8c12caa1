"""The measurement of imports finds no difference in the real size of a small model of the OPUS-MT family."""

from typing import Literal

import pytest
import torch

pytest.importorskip("transformers", reason="the extra `huggingface` is not installed")

from benchmarks.importing import Plan, run


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("size", ["tiny", "opus-mt"])
def test_an_imported_model_of_real_size_is_the_same(size: Literal["tiny", "opus-mt"]):
    plan = Plan(size=size, vocab_size=3000, sentences=200, searched=12)
    found, (table,) = run(plan, torch.device("cpu"))
    assert found["logits"] < 1e-4
    assert min(found["ended 1"], found["ended 4"]) > 6
    assert found["split"] == found["beam 1"] == found["beam 4"] == 1
    assert found["weights"]
    assert found["tokenizers"]
    assert 1e8 < min(found["peaks"].values()) <= max(found["peaks"].values()) < 2e9  # bytes
    assert table.title == f"Import of {size}"
