"""The measurement of imports finds no difference in the real size of a small model of the OPUS-MT family."""

import pytest

pytest.importorskip("transformers", reason="the extra `huggingface` is not installed")

from benchmarks.data import read_everyday
from benchmarks.importing import run


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("size", ["tiny", "opus-mt"])
def test_an_imported_model_of_real_size_is_the_same(size: str):
    found = run(size, 3000, [source for source, _ in read_everyday()[:200]], 12)
    assert found["logits"] < 1e-4
    assert min(found["ended 1"], found["ended 4"]) > 6
    assert found["split"] == found["beam 1"] == found["beam 4"] == 1
    assert found["weights"]
    assert found["tokenizers"]
    assert max(found["import"][1], found["export"][1]) < 2e9  # bytes
    (table,) = found["tables"]
    assert table["title"] == f"Import of {size}"
