"""Limits of a server: sizes of requests, batches and queues, and times."""

from dataclasses import dataclass, fields

from seq2seq.settings.checks import require, require_at_least
from seq2seq.settings.search import SearchConfig

_BYTES_A_CHARACTER = 12  # the most: four bytes of UTF-8 as %XX in a form, or two \uXXXX in JSON
_BYTES_A_TEXT, _BYTES_OF_FIELDS = 256, 4096
_SEARCH = {"beam": 32, "mbr": 32, "max_length_ratio": 10.0, "min_length_ratio": 10.0}  # most of a model's own settings
_SEARCH |= {"max_length_offset": 1000, "min_length": 1000}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits that bound memory and waiting time, even with hostile clients."""

    char_limit: int = 5_000  # characters of all texts of a request
    batch_limit: int = 100  # texts of a request
    sentence_limit: int = 1_000  # sentences of a request
    tag_limit: int = 200  # tags, code and placeholders of a sentence
    term_limit: int = 10  # terms of the glossary in a sentence: the search takes time by their square
    max_batch: int = 64  # sentences translated at once; 1 = no batching
    max_delay: float = 0.005  # seconds that a sentence waits for others
    waiting_texts: int = 2_000  # sentences in the queue, above which requests are refused
    waiting_chars: int = 100_000  # characters in the queue, above which requests are refused
    timeout: float = 30.0  # seconds from the arrival of a request to its answer
    explanations: int = 8  # at a time: waiting, at work or being sent
    explanation_bytes: int = 16_000_000  # of an explanation's JSON
    explain_chars: int = 300  # of a sentence to explain
    connections: int = 500  # open at a time, and requests at work

    def __post_init__(self) -> None:
        for field in fields(self):
            require_at_least(field.name, getattr(self, field.name), 0 if field.name == "max_delay" else 1)

    @property
    def body_limit(self) -> int:
        """Most bytes of a request's body: enough for the texts in any encoding."""
        return _BYTES_A_CHARACTER * self.char_limit + _BYTES_A_TEXT * self.batch_limit + _BYTES_OF_FIELDS


def require_search(search: SearchConfig) -> None:
    """Refuse a model whose own search takes too long, whoever asks."""
    for name, most in _SEARCH.items():
        require(
            (value := getattr(search, name)) <= most,
            f"the model's search.{name}={value} is too much for a server, at most {most}: lower it in the model's "
            "config.json",
        )
