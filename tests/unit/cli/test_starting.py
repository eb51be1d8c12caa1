"""Translating starts quickly: it imports no package that it does not need."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SLOW = {  # packages that take long to import, and parts of PyTorch
    *("datasets", "hydra", "lightning", "matplotlib", "pandas", "pyarrow", "rich", "sacrebleu", "scipy", "sympy"),
    *("torch._dynamo", "torch._inductor", "torchmetrics", "transformers"),
}
PROGRAM = """
import json, sys
from seq2seq.cli import main, translate_app
try:
    main(translate_app)
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps(list(sys.modules)))
"""


def imported(*arguments: str) -> set[str]:
    """Return the modules that `python translate.py` has imported at its end."""
    command = [sys.executable, "-c", PROGRAM, *arguments, "Hola"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
def test_a_translation_imports_no_slow_package(bundle_folder: Path) -> None:
    modules = imported("--model", str(bundle_folder), "--device", "cpu")
    assert "torch" in modules
    assert not modules & SLOW


@pytest.mark.slow
def test_a_translation_by_an_export_imports_no_pytorch(bundle_folder: Path) -> None:
    pytest.importorskip("ctranslate2", reason="the extra `ctranslate2` is not installed")
    from seq2seq.apps.exchange.cached import cached_export

    cached_export(bundle_folder, "int8", None)
    modules = imported("--model", str(bundle_folder), "--engine", "ctranslate2", "--json")
    assert "ctranslate2" in modules
    assert not modules & {*SLOW, "torch", "numpy", "jaxtyping"}
