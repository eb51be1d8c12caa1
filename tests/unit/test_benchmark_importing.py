"""The measurement of imports finds no difference in a small model of the OPUS-MT family."""

import pytest
import torch

pytest.importorskip("transformers", reason="the extra `huggingface` is not installed")

from benchmarks.importing import Plan, run


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_an_imported_model_is_the_same():
    plan = Plan(size="tiny", vocab_size=3000, sentences=200, searched=12)
    results, (table,) = run(plan, torch.device("cpu"))
    assert results["logits"] < 1e-4
    assert min(results["ended 1"], results["ended 4"]) > 6
    assert results["split"] == results["beam 1"] == results["beam 4"] == 1
    assert results["weights"]
    assert results["tokenizers"]
    assert table.title == "Import of tiny"
