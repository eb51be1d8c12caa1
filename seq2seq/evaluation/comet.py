"""COMET, a neural metric that also reads sources, computed in another process. Reads texts only.

COMET runs in its own process, with another Python if the user names one, because unbabel-comet needs older versions of
packages than the rest of this program.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Score, Signature

from seq2seq.errors import UserError, in_short

MODEL = "Unbabel/wmt22-comet-da"  # reads source, translation and reference
INSTALLATION = "python3 -m venv comet-env && comet-env/bin/pip install unbabel-comet 'setuptools<81'"
_WORKER = Path(__file__).with_name("comet_worker.py")


class Comet:
    """COMET (Rei et al. 2020) as one of sacreBLEU's metrics, for its paired tests: 100 × the mean over the segments.

    It has the methods that `sacrebleu.significance.PairedTest` calls. The statistic of a segment is its share of the
    mean, so that the sum over resampled or swapped segments is the score of the resampled or swapped test set.
    """

    def __init__(self, scores: Mapping[tuple[str, ...], Sequence[float]], model: str, version: str) -> None:
        """Store the segments' scores of every system's translations, and the model and version for the signature."""
        self.scores, self.model, self.version = scores, model, version

    def _extract_corpus_statistics(self, hypotheses: Sequence[str], references: object) -> Any:
        scores = self.scores[tuple(hypotheses)]
        return [[100 * score / len(scores)] for score in scores]

    def _aggregate_and_compute(self, statistics: Any) -> Score:
        return self._compute_score_from_stats(np.sum(statistics, axis=0))

    def _compute_score_from_stats(self, sums: Any) -> Score:
        return Score("COMET", float(sums[0]))

    def get_signature(self) -> Signature:
        """Return sacreBLEU's signature with COMET's version and the model."""
        signature = Signature({"num_refs": 1})
        signature.update("comet", self.version)
        signature.update("model", self.model)
        return signature


def run_comet(
    sources: Sequence[str], systems: Sequence[Sequence[str]], reference: Sequence[str], model: str, python: str
) -> Comet:
    """Score every system's translations by COMET; sources, translations and reference have the same number of lines.

    Args:
        sources: the texts that were translated.
        systems: the translations of each system.
        reference: the reference translations of the sources.
        model: a checkpoint's path, the path of the folder that has checkpoints/model.ckpt, or a name on the hub.
        python: interpreter that has unbabel-comet.

    Raises:
        UserError: Python cannot be started or has no COMET, the model cannot be loaded, or COMET fails.
    """
    if model.endswith(".ckpt") and not Path(model).is_file():
        raise UserError(f"--comet-model {model} is no file: give a COMET checkpoint, or a name as {MODEL}")
    segments = [
        [{"src": src, "mt": mt, "ref": ref} for src, mt, ref in zip(sources, one, reference, strict=True)]
        for one in systems
    ]
    found = _ask(python, {"model": model, "systems": segments})
    if "failed" in found:
        error = in_short(found["error"])
        raise UserError(
            {
                "import": f"--metric comet needs the package unbabel-comet, which {python} does not have ({error}): "
                f"install it in an environment of its own, with `{INSTALLATION}`, and add "
                "--comet-python comet-env/bin/python",
                "load": f"COMET cannot load --comet-model {model} ({error}): give the path of a checkpoint, which is "
                "checkpoints/model.ckpt in a folder with hparams.yaml, or connect to the network for a name on the "
                "Hugging Face hub, where some models need `hf auth login`",
                "score": f"COMET failed to score ({error}): try fewer lines, or another --comet-model",
            }[found["failed"]]
        )
    scores = found["scores"]
    has_all = [len(one) for one in scores] == [len(one) for one in systems]
    if not has_all or not all(np.isfinite(one).all() for one in scores):
        raise UserError(
            f"COMET's scores with --comet-model {model} are not one number for each line: try another model"
        )
    return Comet(dict(zip(map(tuple, systems), scores, strict=True)), model, found["version"])


def _ask(python: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the worker's answer to a request.

    Raises:
        UserError: Python cannot be started, or does not answer.
    """
    command = [python, str(_WORKER)]
    try:
        done = subprocess.run(
            command, input=json.dumps(request), capture_output=True, encoding="utf-8", errors="replace"
        )
    except OSError as error:
        raise UserError(
            f"--comet-python {python} cannot be started ({error.strerror}): give a Python interpreter, such as "
            "comet-env/bin/python"
        ) from error
    try:
        found = json.loads(done.stdout)
        if "failed" not in found:
            scores = [[float(score) for score in one] for one in found["scores"]]
            return {"scores": scores, "version": str(found["version"])}
        return dict(found)
    except (ValueError, TypeError, LookupError) as error:
        told = in_short((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
        raise UserError(
            f"{python} ended with status {done.returncode} and no scores of COMET ({told}): see that it is a Python "
            "interpreter, and that there is enough memory"
        ) from error
