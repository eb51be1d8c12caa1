"""Beam search step by step: every candidate of every step, and whether it was kept, finished or dropped."""

from dataclasses import asdict, dataclass
from typing import Any

from seq2seq.engine import Source
from seq2seq.explain.subject import encode_sentence, require_engine
from seq2seq.search.step import Step
from seq2seq.settings.search import SearchConfig
from seq2seq.text.normalise import normalise
from seq2seq.text.tokenizer import EOS, Tokenizer
from seq2seq.translator import Translator

PLACES = 6  # decimals in the result


@dataclass(frozen=True)
class Candidate:
    """A hypothesis after a step, one piece longer than its parent.

    Attributes:
        id: its number, from 1.
        parent: the id of the hypothesis that it continues; None: the empty one.
        piece: its last piece.
        text: of all its pieces.
        log_prob: of the piece (nats).
        score: sum of log-probabilities (nats).
        fate: "kept", "finished", or "dropped": ranked too low, or unable to win any more.
    """

    id: int
    parent: int | None
    piece: str
    text: str
    log_prob: float
    score: float
    fate: str


def watch_beams(translator: Translator, source: str, settings: SearchConfig | None = None) -> dict[str, Any]:
    """Translate a sentence by the ordinary beam search, and record every step.

    Args:
        translator: of one model, searched by PyTorch.
        source: one sentence.
        settings: of a plain beam search; None: the translator's.

    Returns:
        source, beam, length_penalty; steps, each with its candidates (`Candidate`), best first; and result: id, text
        and normalised_score (score / length^α) of all that finished, best first. The first is the translation.

    Raises:
        UserError: the sentence is empty or too long, the engine shows nothing, or the settings ask for another search.
    """
    engine, _ = require_engine(translator)
    settings = translator.search if settings is None else settings
    tokenizer = translator.tokenizer
    ids = encode_sentence(tokenizer, source, "sentence")
    record = _Record(tokenizer, settings)
    engine.watch(Source(ids, key=1 << 16), settings, record.see, [[one] for one in tokenizer.user_symbols.values()])
    return {
        "source": normalise(source),
        "beam": settings.beam,
        "length_penalty": settings.length_penalty,
        "steps": [{"candidates": [_plain(one) for one in step]} for step in record.steps],
        "result": record.result(),
    }


class _Record:
    """The recorded steps of one sentence's search."""

    def __init__(self, tokenizer: Tokenizer, settings: SearchConfig) -> None:
        self.tokenizer, self.settings = tokenizer, settings
        self.steps: list[list[Candidate]] = []
        self.ids: dict[int | None, list[int]] = {None: []}  # of each candidate
        self.scores: dict[int | None, float] = {None: 0.0}
        self.places: list[int | None] = [None]  # the candidate in each place of the beam

    def see(self, step: Step) -> None:
        """Record one step."""
        tokens, scores, parents = (table[0].tolist() for table in (step.tokens, step.scores, step.parents))
        order, alive = step.places[0].tolist(), step.alive[0].tolist()
        kept = {number for number, lives in zip(order, alive, strict=True) if lives}
        first = len(self.ids)
        found = []
        for number, (token, score, place) in enumerate(zip(tokens, scores, parents, strict=True)):
            if score == -float("inf"):
                break  # from here on there are none
            has_ended = token == EOS and number < self.settings.beam
            fate = "finished" if has_ended else "kept" if number in kept and token != EOS else "dropped"
            found.append(self._add(first + number, self.places[place], token, score, fate))
        self.steps.append(found)
        self.places = [first + number for number in order]

    def _add(self, number: int, parent: int | None, token: int, score: float, fate: str) -> Candidate:
        self.ids[number] = [*self.ids[parent], token]
        self.scores[number] = score
        (piece,), (text,) = self.tokenizer.tokens([token]), self.tokenizer.decode([self.ids[number]])
        return Candidate(number, parent, piece, text, score - self.scores[parent], score, fate)

    def result(self) -> list[dict[str, Any]]:
        """All that finished, best first."""
        alpha = self.settings.length_penalty
        finished = [one for step in self.steps for one in step if one.fate == "finished"]
        values = {one.id: one.score / len(self.ids[one.id]) ** alpha for one in finished}
        best = sorted(finished, key=lambda one: values[one.id], reverse=True)
        return [{"id": one.id, "text": one.text, "normalised_score": round(values[one.id], PLACES)} for one in best]


def _plain(candidate: Candidate) -> dict[str, Any]:
    plain = asdict(candidate)
    return plain | {name: round(plain[name], PLACES) for name in ("log_prob", "score")}
