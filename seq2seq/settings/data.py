"""Settings of texts and of their vocabulary: `data` and `tokenizer`."""

import math
from dataclasses import dataclass, field

from seq2seq.settings.checks import IntOrAuto, require, require_at_least, require_choice, require_number_or_auto
from seq2seq.settings.rules import AUTO


@dataclass(kw_only=True)
class DataConfig:
    """Where sentence pairs come from and how they are cleaned."""

    src_lang: str = "en"  # language that is translated from, as its code
    tgt_lang: str = "es"  # language that is translated into
    root: str | None = None  # folder that relative paths start from; null: the working directory, or the hub if set
    hub: str | None = None  # dataset on Hugging Face, NAME or NAME:CONFIG; used when root is null
    hub_splits: dict[str, str] = field(
        default_factory=dict
    )  # our split → the hub's; one not named is held out of train
    train: list[str] = field(default_factory=list)  # a.tsv, a.csv, a.jsonl, a.parquet, a.en+a.es, globs; also .gz, .xz
    validation: list[str] = field(default_factory=list)  # as train; [] = data.held_out pairs of train
    test: list[str] = field(default_factory=list)  # as train, each file a test set; [] = data.held_out pairs of train
    columns: list[str] = field(
        default_factory=list
    )  # source and target column of CSV, JSONL, Parquet; [] = by language
    languages: list[str] = field(
        default_factory=list
    )  # order of the columns of a TSV and of data.columns, as [en, es]; [] = source first, allowed for en→es only
    held_out: IntOrAuto = AUTO  # pairs of train held out for each missing split; auto: 1,000, or a twentieth if less
    max_length: int = 250  # subwords a side; longer training pairs are dropped
    max_ratio: float = 3.0  # characters of the longer side per character of the shorter (when it has more than 20)
    max_characters: int = 2000  # characters a side; longer training pairs are dropped
    drop_identical: bool = True  # drop training pairs whose sides are the same
    drop_duplicates: bool = True  # keep only the first of equal training pairs
    language_filter: bool = False  # drop training pairs of which a side is in another language (extra langid)
    language_characters: int = 40  # sides that are shorter are not judged
    language_confidence: float = 0.9  # probability from which a side counts as in another language
    remove_overlap: bool = True  # take training pairs that share a side with validation or test out of training
    weights: dict[str, float] = field(
        default_factory=dict
    )  # corpus → its weight among the draws; one not named has 1; {} = every pair once an epoch
    temperature: float = 1.0  # T of shares ∝ size^(1/T); 1 = as they are, higher = small corpora drawn more often
    streaming: bool = False  # read training text while training instead of preparing it: for more than fits on disk
    block: int = 50_000  # pairs shuffled and batched together where text is streamed or segmented anew
    cache: str = "~/.cache/seq2seq"  # folder of prepared text; the variable SEQ2SEQ_CACHE overrides this
    num_proc: int = 1  # processes that prepare text; the result does not depend on it

    def __post_init__(self) -> None:
        require(len(self.columns) in (0, 2), f"data.columns={self.columns} must name two columns, source and target")
        require(
            not self.languages or sorted(self.languages) == sorted([self.src_lang, self.tgt_lang]),
            f"data.languages={self.languages} must be data.src_lang={self.src_lang} and data.tgt_lang={self.tgt_lang}, "
            "in the order of the columns",
        )
        require_number_or_auto("data.held_out", self.held_out, 1)
        require_at_least("data.max_length", self.max_length, 1)
        require_at_least("data.max_ratio", self.max_ratio, 1)
        require_at_least("data.max_characters", self.max_characters, 1)
        require_at_least("data.language_characters", self.language_characters, 1)
        require(0 < self.language_confidence <= 1, f"data.language_confidence={self.language_confidence} not in (0, 1]")
        require_at_least("data.num_proc", self.num_proc, 1)
        require_at_least("data.block", self.block, 1)
        for name, weight in self.weights.items():
            require(0 <= weight < math.inf, f"data.weights has {name}={weight}: a weight is a number from 0 on")
        require(self.temperature > 0, f"data.temperature={self.temperature} must be greater than 0")
        require(
            self.temperature == 1 or not self.weights,
            "data.weights and data.temperature both decide how corpora are mixed: give one of them",
        )
        require(
            self.temperature == 1 or not self.streaming,
            f"data.temperature={self.temperature} needs every corpus's size, which a stream does not tell: "
            "give data.weights, or data.streaming=false",
        )

    @property
    def is_swapped(self) -> bool:
        """Whether the columns stand the other way round: the target's first."""
        return bool(self.languages) and self.languages[0] != self.src_lang


@dataclass(kw_only=True)
class TokenizerConfig:
    """SentencePiece over both languages jointly."""

    type: str = "unigram"  # unigram (Kudo 2018) | bpe (Sennrich et al. 2016)
    vocab_size: IntOrAuto = AUTO  # subwords; auto: 2,000 to 32,000 by the number of training pairs
    byte_fallback: bool = True  # unseen characters become bytes instead of UNK
    character_coverage: float = 0.9999  # share of the text's characters that get a subword of their own
    input_sentence_size: int = 1_000_000  # sentences that the vocabulary is learnt from, sampled from the text
    user_symbols: list[str] = field(
        default_factory=list
    )  # words that stay one piece, such as the tag <bt> of synthetic sources; no translation contains them
    model: str | None = None  # a finished tokenizer.model to use; null: train one on the training texts

    def __post_init__(self) -> None:
        require_choice("tokenizer.type", self.type, ("unigram", "bpe"))
        require_number_or_auto("tokenizer.vocab_size", self.vocab_size, 8)
        require(
            0 < self.character_coverage <= 1, f"tokenizer.character_coverage={self.character_coverage} not in (0, 1]"
        )
        require_at_least("tokenizer.input_sentence_size", self.input_sentence_size, 1)
        for symbol in self.user_symbols:
            require(
                symbol.split() == [symbol] and "," not in symbol,
                f"tokenizer.user_symbols has {symbol!r}: a symbol is one word without comma, such as <bt>",
            )
