"""Settings of texts and of their vocabulary: `data` and `tokenizer`."""

import math
import os
from dataclasses import dataclass, field
from pathlib import Path

from seq2seq.settings.checks import IntOrAuto, check_choices, check_ranges, require
from seq2seq.settings.rules import AUTO


@dataclass(kw_only=True)
class DataConfig:
    """Where sentence pairs come from and how they are cleaned."""

    src_lang: str = "en"  # code of the language that is translated from
    tgt_lang: str = "es"  # code of the language that is translated into
    root: str | None = None  # folder that relative paths start from; null: the working directory, or the hub if set
    hub: str | None = None  # dataset on Hugging Face, NAME or NAME:CONFIG; used when root is null
    # our split → the hub's split; a split that is not named is held out of train
    hub_splits: dict[str, str] = field(default_factory=dict)
    train: list[str] = field(default_factory=list)  # a.tsv, a.csv, a.jsonl, a.parquet, a.en+a.es, globs; also .gz, .xz
    # as train, each file a validation set, judged by the mean over the sets; [] = data.held_out pairs of train
    validation: list[str] = field(default_factory=list)
    test: list[str] = field(default_factory=list)  # as train, each file a test set; [] = data.held_out pairs of train
    # source and target column of CSV, JSONL, Parquet; [] = by language
    columns: list[str] = field(default_factory=list)
    # order of the columns of a TSV and of data.columns, as [en, es]; [] = source first, allowed for en→es only
    languages: list[str] = field(default_factory=list)
    held_out: IntOrAuto = AUTO  # pairs of train held out for each missing split; auto: 1,000, or a twentieth if less
    # corpora of train that each give data.held_out pairs to a validation set and to a test set of their own, besides
    # the sets of data.validation and data.test; named as in data.weights; [] = none
    held_out_from: list[str] = field(default_factory=list)
    max_length: int = 250  # subwords a side; longer training pairs are dropped
    max_ratio: float = 3.0  # characters of the longer side per character of the shorter (when it has more than 20)
    max_characters: int = 2000  # characters a side; longer training pairs are dropped
    drop_identical: bool = True  # drop training pairs whose sides are the same
    drop_duplicates: bool = True  # keep only the first of equal training pairs
    language_filter: bool = False  # drop training pairs of which a side is in another language (extra langid)
    language_characters: int = 40  # characters from which the language of a side is checked
    language_confidence: float = 0.9  # probability from which a side counts as in another language
    remove_overlap: bool = True  # drop training pairs that share a side with validation or test
    # corpus → its weight among the draws; a corpus that is not named has 1; {} = every pair once an epoch
    weights: dict[str, float] = field(default_factory=dict)
    temperature: float = 1.0  # T of shares ∝ size^(1/T); 1 = by size, higher = small corpora drawn more often
    streaming: bool = False  # read training text while training instead of preparing it: for more than fits on disk
    block: int = 50_000  # pairs shuffled and batched together if text is streamed or segmented anew
    cache: str = "~/.cache/seq2seq"  # folder of prepared text; the variable SEQ2SEQ_CACHE overrides this
    num_proc: int = 1  # processes that prepare text; the result does not depend on their number

    def __post_init__(self) -> None:
        require(len(self.columns) in (0, 2), f"data.columns={self.columns} must name two columns, source and target")
        require(
            not self.languages or sorted(self.languages) == sorted([self.src_lang, self.tgt_lang]),
            f"data.languages={self.languages} must be data.src_lang={self.src_lang} and data.tgt_lang={self.tgt_lang}, "
            "in the order of the columns",
        )
        names = ("held_out", "max_length", "max_ratio", "max_characters", "language_characters", "num_proc", "block")
        check_ranges("data.", self, **dict.fromkeys(names, (1, math.inf)))
        require(0 < self.language_confidence <= 1, f"data.language_confidence={self.language_confidence} not in (0, 1]")
        for name, weight in self.weights.items():
            require(0 <= weight < math.inf, f"data.weights has {name}={weight}: a weight is a number from 0 on")
        require(self.temperature > 0, f"data.temperature={self.temperature} must be greater than 0")
        require(
            self.temperature == 1 or not self.weights,
            "data.weights and data.temperature both decide how corpora are mixed: give one of them",
        )
        require(
            self.temperature == 1 or not self.streaming,
            f"data.temperature={self.temperature} needs every corpus's size, which is unknown for a stream: "
            "give data.weights, or data.streaming=false",
        )
        require(
            not (self.held_out_from and self.streaming),
            f"data.held_out_from={self.held_out_from} draws pairs from whole corpora, which a stream does not know: "
            "give data.validation and data.test, or data.streaming=false",
        )

    @property
    def is_swapped(self) -> bool:
        """Whether the target's column stands before the source's."""
        return bool(self.languages) and self.languages[0] != self.src_lang


def cache_root(setting: str = DataConfig.cache) -> Path:
    """Find the folder of all caches: the environment's SEQ2SEQ_CACHE, else the setting."""
    return Path(os.environ.get("SEQ2SEQ_CACHE") or setting).expanduser()


@dataclass(kw_only=True)
class TokenizerConfig:
    """SentencePiece over both languages jointly, or over each by itself."""

    type: str = "unigram"  # unigram (Kudo 2018) | bpe (Sennrich et al. 2016)
    # whether both languages share one vocabulary, and the model one embedding; false: each has its own
    joint: bool = True
    vocab_size: IntOrAuto = AUTO  # subwords; auto: 2,000 to 32,000 by the number of training pairs
    byte_fallback: bool = True  # unseen characters become bytes instead of UNK
    character_coverage: float = 0.9999  # share of the text's characters that get a subword of their own
    input_sentence_size: int = 1_000_000  # sentences that the vocabulary is learnt from, sampled from the text
    # words that stay one piece, such as the tag <bt> of synthetic sources; no translation contains them
    user_symbols: list[str] = field(default_factory=list)
    # a finished tokenizer.model to use, or a folder with two; null: train on the training texts
    model: str | None = None

    def __post_init__(self) -> None:
        check_choices("tokenizer.", self, type=("unigram", "bpe"))
        require(self.joint or self.model is None, f"tokenizer.model={self.model} is trained: leave out tokenizer.joint")
        check_ranges("tokenizer.", self, vocab_size=(8, math.inf), input_sentence_size=(1, math.inf))
        coverage = self.character_coverage
        require(0 < coverage <= 1, f"tokenizer.character_coverage={coverage} not in (0, 1]")
        for symbol in self.user_symbols:
            require(
                symbol.split() == [symbol] and "," not in symbol,
                f"tokenizer.user_symbols has {symbol!r}: a symbol is one word without comma, such as <bt>",
            )
