"""The claim of each ablation, stated before any run.

Every experiment is conf/experiment/lab/NAME.yaml, whose header states the same claim.
"""

from dataclasses import dataclass

BASELINE = "baseline"


@dataclass(frozen=True)
class Claim:
    """How a measure of an experiment should differ from another experiment's, at equal data, updates and seeds.

    measure: "bleu" of the test set, or "validation_loss" (nats a target token, teacher-forced).
    direction: "lower" or "higher" than that of `against`; "either" if nothing is claimed.
    """

    experiment: str
    text: str
    direction: str
    measure: str = "bleu"
    against: str = BASELINE


CLAIMS = (
    Claim(
        "no_positions",
        "Attention knows no order, so positions have to be told: without them BLEU falls.",
        "lower",
    ),
    Claim(
        "shared_query_key",
        "Relevance from one projection is mutual, and language is not: without queries of their own BLEU falls.",
        "lower",
    ),
    Claim(
        "no_queries",
        "A fixed mixing ratio is not enough: if all that may be attended to weighs the same, BLEU falls.",
        "lower",
    ),
    Claim("unscaled", "Without 1/√c softmax saturates and its gradients vanish: BLEU falls.", "lower"),
    Claim("heads_1", "One head sees one pattern: with one head BLEU is lower than with four.", "lower"),
    Claim("heads_2", "One head sees one pattern: with two heads BLEU is lower than with four.", "lower"),
    Claim("heads_8", "More heads see more patterns: with eight BLEU is higher than with four.", "higher"),
    Claim(
        "no_causal_mask",
        "A decoder that looks ahead in training learns to copy, not to predict: its loss is lower and its BLEU falls.",
        "lower",
        "validation_loss",
    ),
    Claim(
        "no_causal_mask",
        "A decoder that looks ahead in training learns to copy, not to predict: its loss is lower and its BLEU falls.",
        "lower",
    ),
    Claim(
        "no_cross_attention",
        "Cross-attention is all that the decoder knows of the source: without it BLEU falls to about nothing.",
        "lower",
    ),
    Claim(
        "no_warmup",
        "Warm-up tames the first updates: at the full learning rate from the first one, BLEU falls.",
        "lower",
    ),
    Claim("no_dropout", "Dropout fights over-fitting: without it BLEU falls.", "lower"),
    Claim(
        "pre_norm",
        "Normalising before each sublayer instead of after it: which is better is not claimed.",
        "either",
    ),
    Claim(
        "modern",
        "The modern style (pre-norm, RMSNorm, SwiGLU, rotary positions, no biases): BLEU is higher than as published.",
        "higher",
    ),
    Claim(
        "lstm_attention",
        "Attention alone does better than recurrence with attention: BLEU of the LSTM with attention is lower.",
        "lower",
    ),
    Claim(
        "lstm_no_attention",
        "One state cannot hold a whole sentence: without attention BLEU of the LSTM falls.",
        "lower",
        against="lstm_attention",
    ),
)  # fmt: skip
