"""Several processes translate as one does, in order; what goes wrong in one is one line."""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from seq2seq.apps.distributed import bulk
from seq2seq.errors import UserError
from seq2seq.settings.search import Compile
from seq2seq.translate.translator import Translator
from seq2seq.translate.types import SearchEngine, SearchRequest, Text

pytestmark = pytest.mark.slow  # a process needs seconds to begin
LINES = ["The cat drank the milk.", "", "Ella ve la leche.", "¿Quién quiere niños?"]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "CHUNK_LINES", 3)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("compiles", ["off", "auto"])
def test_several_processes_translate_as_one_does(bundle_folder: Path, compiles: Compile) -> None:
    translator = Translator.load(bundle_folder, "cpu", compiles=compiles)
    texts = [Text(line) for line in LINES * 4]
    request = translator.request(sampling=True, seed=3, n_best=2)  # samples depend on the number of the line
    expected = list(translator.stream(texts, request, chunk=3, first_line=7))
    translations = list(bulk.stream(translator, texts, request, 2, first_line=7))
    assert [[hypothesis.tokens for hypothesis in best] for best in translations] == [
        [hypothesis.tokens for hypothesis in best] for best in expected
    ]
    scores = [hypothesis.score for best in expected for hypothesis in best]
    assert [hypothesis.score for best in translations for hypothesis in best] == pytest.approx(scores, rel=1e-5)


def test_a_process_that_dies_while_another_starts_is_one_line(translator, monkeypatch):
    # what the executor raises if it closes its pipes, because a process died, while the next is being started
    monkeypatch.setattr(ProcessPoolExecutor, "submit", Mock(side_effect=OSError("handle is closed")))
    with pytest.raises(UserError, match=r"a process died \(of 2\), perhaps"):
        list(bulk.stream(translator, [Text("Ella ve la leche.")], translator.request(), 2))


@pytest.mark.usefixtures("small_chunks")
def test_a_mistake_found_in_a_process_is_told_as_it_is(translator: Translator) -> None:
    texts = [Text(line) for line in LINES]
    with pytest.raises(UserError, match="the phrase ' ' is empty"):
        list(bulk.stream(translator, texts, SearchRequest(settings=translator.search, banned=[" "]), 2))


def test_workers_are_for_the_lines_of_files_on_the_cpu(run, translator: Translator) -> None:
    assert "--workers is for the lines of a file or of stdin" in run("--workers", "2", "Hola")[2]
    other = Translator(Mock(spec=SearchEngine), translator.tokenizer)
    with pytest.raises(UserError, match="--workers 2 is for the pytorch engine on the CPU: leave it out"):
        next(bulk.stream(other, [], translator.request(), 2))
