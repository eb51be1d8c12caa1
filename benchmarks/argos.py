"""A package of Argos Translate beside `--engine ctranslate2`: equal translations of sentences that both leave whole."""

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.command import Options, Results, Table
from benchmarks.data import read_test
from seq2seq.apps.exchange.cached import cached_export
from seq2seq.apps.exchange.ctranslate2 import export_argos
from seq2seq.errors import UserError
from seq2seq.storage.output import find_model
from seq2seq.translate.ctranslate2_engine import load_export

BEAM, LENGTH_PENALTY = 4, 0.2  # what Argos Translate 1.11 always asks for
PROGRAM = """
import json, sys
from argostranslate import package, translate
file, src, tgt, texts = json.load(sys.stdin)
package.install_from_path(file)
translation = translate.get_translation_from_codes(src, tgt).underlying
translation.sentencizer = type("Whole", (), {"split_sentences": staticmethod(lambda text: [text])})
json.dump([translation.translate(text) for text in texts], sys.stdout)
"""


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `argos`."""

    model: Path  # run or bundle with a joint vocabulary
    python: Path  # Python of an environment that has argostranslate, such as argos-env/bin/python
    data: Path | None = None  # folder with test.tsv; without it, the bundled sentences that were written by hand
    sentences: int = 500  # sentences to translate, from the beginning of the file


def run(plan: Plan, device: torch.device) -> Results:
    """Export the model, let Argos Translate install and run it, and compare the translations, in float32 on the CPU.

    Argos Translate does not cut the sentences here, since it would download a model to do so.
    """
    bundle, texts = find_model(plan.model), [source for source, _ in read_test(plan.data)[: plan.sentences]]
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "model.argosmodel"
        export_argos(bundle, file)
        ours = load_export(cached_export(bundle, "float32", name), "cpu", plan.threads)
        places = dict.fromkeys(("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"), name)
        done = subprocess.run(
            [str(plan.python), "-c", PROGRAM],
            input=json.dumps([str(file), ours.src_lang, ours.tgt_lang, texts]),
            env={**os.environ, **places, "ARGOS_COMPUTE_TYPE": "float32"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise UserError(f"{plan.python}: {done.stderr.strip().splitlines()[-1]}")
        theirs = [" ".join(text.split()) for text in json.loads(done.stdout)]
        own = ours.translate(texts, beam=BEAM, length_penalty=LENGTH_PENALTY, repair=False)
    sizes, longest = ours.count_subwords(texts), ours.trained_length or max(ours.count_subwords(texts))
    whole = [a == b for a, b, size in zip(own, theirs, sizes, strict=True) if size <= longest]
    values = {"whole": len(whole), "equal": sum(whole), "cut": len(texts) - len(whole)}
    header = ["", "sentences", "equal"]
    rows = [["translated whole", f"{len(whole)}", f"{sum(whole)}"], ["cut by this project", f"{values['cut']}", ""]]
    return values, [Table(f"Argos Translate, beam {BEAM}, length penalty {LENGTH_PENALTY}", header, rows)]
