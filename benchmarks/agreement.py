"""Compare the translations and scores of two searches with the same weights."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.tables import Table
from seq2seq.errors import UserError

TOLERANCE = 1e-3  # nats per token; far above the rounding errors of float32


class Scored(NamedTuple):
    """A translation and its score."""

    text: str
    score: float  # sum of log-probabilities / length, both with EOS (nats per token)
    has_ended: bool  # False: transformers stopped at the limit, and the score lacks EOS; always True for ours


def agreement(pairs: Sequence[tuple[Scored, Scored]]) -> dict[str, Any]:
    """Return a comparison of pairs (our translation, their translation).

    Raises:
        UserError: two identical translations have different scores, or no translation has ended.
    """
    ended = [(ours, theirs) for ours, theirs in pairs if theirs.has_ended]
    if not ended:
        raise UserError(
            f"none of {len(pairs)} translations ended before the limit, so their scores cannot be compared: give a "
            "trained --model, or raise --train-seconds"
        )
    same = [abs(ours.score - theirs.score) for ours, theirs in ended if ours.text == theirs.text]
    gaps = [ours.score - theirs.score for ours, theirs in ended if ours.text != theirs.text]
    found = {
        "sentences": len(pairs),
        "cut_off_at_the_limit": len(pairs) - len(ended),  # transformers stopped at the limit
        "identical": len(same),
        "largest_difference_of_identical": max(same, default=0.0),  # nats
        "different": len(gaps),
        "different_ours_better": sum(gap > TOLERANCE for gap in gaps),
        "different_theirs_better": sum(gap < -TOLERANCE for gap in gaps),
        "mean_score_ours": _mean([ours.score for ours, _ in ended]),
        "mean_score_theirs": _mean([theirs.score for _, theirs in ended]),
    }
    if found["largest_difference_of_identical"] > TOLERANCE:
        raise UserError(f"the scores of the same translations differ: {found}; the comparison would mean nothing")
    return found


def agreement_table(found: dict[str, Any]) -> Table:
    """Return the comparison as a table."""
    whole = found["sentences"] - found["cut_off_at_the_limit"]
    better, worse = found["different_ours_better"], found["different_theirs_better"]
    rows = [
        ["translations that end before the limit", f"{whole} of {found['sentences']}"],
        ["identical among them", f"{found['identical']} of {whole}"],
        ["largest difference between identical ones' scores (nats)", f"{found['largest_difference_of_identical']:.1e}"],
        [
            "different: this project's scores higher / as high / lower",
            f"{better} / {found['different'] - better - worse} / {worse}",
        ],
        ["mean score, this project (nats)", f"{found['mean_score_ours']:.5f}"],
        ["mean score, Hugging Face (nats)", f"{found['mean_score_theirs']:.5f}"],
    ]
    return Table("Agreement", ["same weights, float32, exact search on both sides", "value"], rows)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
