"""What a server tells of itself, for Prometheus; knows no requests."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counts of one server; several in a process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "seq2seq_requests", "Requests answered.", ["method", "path", "status"], registry=registry
        )
        self.seconds = Histogram(
            "seq2seq_request_seconds", "Time to the whole answer.", ["path"], buckets=_SECONDS, registry=registry
        )
        self.rejected = Counter("seq2seq_rejected", "Requests refused or given up.", ["reason"], registry=registry)
        self.sentences = Counter("seq2seq_sentences", "Sentences, or documents, translated.", registry=registry)
        self.batch = Histogram(
            "seq2seq_batch_sentences", "Sentences translated at once.", buckets=_SIZES, registry=registry
        )
        self.batch_seconds = Histogram(
            "seq2seq_batch_seconds", "Time to translate a batch.", buckets=_SECONDS, registry=registry
        )

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Add a number that is looked up whenever it is asked for."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def on_batch(self, count: int, seconds: float) -> None:
        """Count a batch that was translated."""
        self.sentences.inc(count)
        self.batch.observe(count)
        self.batch_seconds.observe(seconds)

    def text(self) -> bytes:
        """All numbers, as Prometheus reads them."""
        return generate_latest(self.registry)
