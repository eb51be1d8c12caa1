"""Logits to sequences: search over a step function. Knows no model."""

from typing import Any

from seq2seq.search.beam import BeamSearch
from seq2seq.search.constrained import ConstrainedBeamSearch
from seq2seq.search.driver import Search, SearchTask
from seq2seq.search.sampling import SampleSearch


def make_search(task: SearchTask) -> Search[Any]:
    """Return the search that the task's settings and phrases ask for; a beam of 1 is greedy search."""
    if task.settings.sampling:
        return SampleSearch(task)
    return ConstrainedBeamSearch(task) if any(task.phrases) else BeamSearch(task)
