"""The process in which COMET scores translations: a request as JSON on stdin, an answer as JSON on stdout.

Any Python from 3.8 on that has unbabel-comet can run this file, which imports nothing of this package.
"""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any


def answer(request: "dict[str, Any]") -> "dict[str, Any]":
    """Score the translations of systems by a COMET model.

    Args:
        request: `model`, a checkpoint, its folder, or a name on the Hugging Face hub; `systems`, for each system its
            segments, dictionaries of `src`, `mt` and `ref`.

    Returns:
        `version` of COMET, and `scores`, a list of the segments' scores for each system; or `failed`, which is import,
        load or score, and `error`.
    """
    step = "import"
    try:
        comet, torch = importlib.import_module("comet"), importlib.import_module("torch")
        step, path = "load", request["model"]
        if Path(path).is_dir():
            path = str(Path(path) / "checkpoints" / "model.ckpt")
        elif not Path(path).exists():
            path = comet.download_model(path)
        model = comet.load_from_checkpoint(path)
        step = "score"
        model.set_embedding_cache()  # systems share sources and references
        gpus = 1 if torch.cuda.is_available() else 0
        found = [model.predict(one, gpus=gpus, progress_bar=False) for one in request["systems"]]
        return {"version": comet.__version__, "scores": [one["scores"] for one in found]}
    except Exception as error:  # of any kind: the answer reports the error
        cause = _cause(error)
        return {"failed": step, "error": f"{type(cause).__name__}: {cause}"}


def _cause(error: BaseException) -> BaseException:
    """Return the original error: COMET replaces every error of the hub by one that says that the model is unknown."""
    while type(error) in (KeyError, Exception) and error.__context__ is not None:
        error = error.__context__
    return error


def main() -> None:
    """Answer the request on stdin; what libraries print goes to stderr."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != here]  # it has another comet.py
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        json.dump(answer(json.load(sys.stdin)), out)


if __name__ == "__main__":
    main()
