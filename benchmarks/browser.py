"""A model in one HTML page: equal to Python with the same weights, and speed, in headless Chromium."""

import os
import re
import shutil
import statistics
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.command import Options, Results, Table
from benchmarks.data import read_test
from seq2seq.apps.explain.model_page import export_html, quantised
from seq2seq.errors import UserError
from seq2seq.model.transformer import Transformer
from seq2seq.storage.output import find_model
from seq2seq.translate.bundle import load_bundle
from seq2seq.translate.translator import Translator

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# In a page of `seq2seq export html`: a worker of its own, whose answers are awaited.
ASK = """async ([path, values]) => {
  const textOf = (id) => document.getElementById(id).textContent;
  globalThis.asked ??= new Worker(URL.createObjectURL(new Blob([textOf("worker")], { type: "text/javascript" })));
  const answer = (message) => new Promise((resolve, reject) => {
    globalThis.asked.onmessage = ({ data }) => (data.error === undefined ? resolve(data.answer) : reject(data.error));
    globalThis.asked.postMessage(message);
  });
  if (!globalThis.isLoaded) await answer({ id: 0, model: textOf("model") });
  globalThis.isLoaded = true;
  return answer({ id: 1, path, values });
}"""


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `browser`."""

    model: Path | None = None  # run or bundle; without it, the newest
    data: Path | None = None  # folder with test.tsv; without it, the bundled sentences that were written by hand
    sentences: int = 200  # lines of one sentence to translate, from the beginning of the file


def run(plan: Plan, device: torch.device) -> Results:
    """Translate the same sentences in Chromium and here, greedily and with the bundle's beam."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None or find_spec("playwright") is None:
        raise UserError("this needs Chromium and Playwright: apt-get install chromium; pip install playwright")
    from playwright.sync_api import sync_playwright

    folder = find_model(plan.model)
    bundle, own = load_bundle(folder), Translator.load(folder, "cpu")
    assert isinstance(bundle.model, Transformer)
    settings = replace(bundle.config.search, repair=False)
    same = Translator(quantised(bundle.model), bundle.tokenizer, search=settings)
    os.environ.setdefault("DBUS_SESSION_BUS_ADDRESS", "disabled:")
    values: dict[str, Any] = {}
    rows = []
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for beam in (1, settings.beam):
            file = Path(name) / f"beam{beam}.html"
            export_html(folder, file, beam=beam)
            page = browser.new_context(offline=True).new_page()
            start = time.perf_counter()
            page.goto(f"{file.as_uri()}#Yes.")
            page.locator("#target").filter(has_text=".").wait_for(timeout=120_000)
            first = time.perf_counter() - start
            codes = {"source": bundle.config.src_lang, "target": bundle.config.tgt_lang, "alternatives": 0}
            memory = renderer_memory()  # before the second worker, which answers the questions below
            texts, found, seconds = [], [], []
            for text in (source for source, _ in read_test(plan.data)):
                start = time.perf_counter()
                answer = page.evaluate(ASK, ["translate", {"q": text, **codes}])
                if len(answer["sentences"]) == 1:  # the browser cuts texts into sentences by its own rules
                    seconds.append(time.perf_counter() - start)
                    texts.append(text)
                    found.append(answer["translatedText"])
                if len(texts) == plan.sentences:
                    break
            expected, exact = (translator.translate(texts, beam=beam, repair=False) for translator in (same, own))
            equal = sum(a == b for a, b in zip(found, expected, strict=True))
            as_float = sum(a == b for a, b in zip(found, exact, strict=True))
            speed = len(texts) / sum(seconds[1:]) if len(texts) > 1 else 0.0
            size = file.stat().st_size
            values[f"beam {beam}"] = {"equal": equal, "as_float32": as_float, "sentences": len(texts), "bytes": size}
            values[f"beam {beam}"] |= {"first": first, "median": statistics.median(seconds)}
            values[f"beam {beam}"] |= {"renderer_mb": memory}
            cells = [f"{size / 1e6:.1f} MB", f"{first:.1f} s", f"{memory:.0f} MB", f"{speed:.1f}"]
            rows.append([f"{beam}", *cells, f"{equal} of {len(texts)}", f"{as_float} of {len(texts)}"])
        browser.close()
    header = [
        "beam",
        "file",
        "first translation",
        "memory",
        "sentences/s",
        "equal, same weights",
        "equal, float32 weights",
    ]
    return values, [Table("A model in one page", header, rows)]


def renderer_memory() -> float:
    """Return the peak memory (MB) of the largest process that shows a page; 0 where there is no /proc."""
    peaks = [0.0]
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"--type=renderer" in (folder / "cmdline").read_bytes():
                status = (folder / "status").read_text(encoding="utf-8")
                peaks += [int(kilobytes) / 1000 for kilobytes in re.findall(r"VmHWM:\s+(\d+) kB", status)]
    return max(peaks)
