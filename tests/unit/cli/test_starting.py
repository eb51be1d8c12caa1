"""Translating starts quickly: it imports no package that it does not need."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SLOW = {  # packages that take long to import, and parts of PyTorch
    *("datasets", "hydra", "lightning", "matplotlib", "pandas", "pyarrow", "rich", "sacrebleu", "scipy", "sympy"),
    *("torch._dynamo", "torch._inductor", "torch.distributed.fsdp", "torchmetrics", "transformers"),
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


@pytest.mark.slow
def test_a_translation_imports_no_slow_package(bundle_folder: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, "--model", str(bundle_folder), "--device", "cpu", "Hola"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    imported = set(json.loads(done.stdout.splitlines()[-1]))
    assert "torch" in imported
    assert not imported & SLOW
