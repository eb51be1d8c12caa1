"""Settings of texts and of their vocabulary: `data` and `tokenizer`."""

import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from unicodedata import is_normalized

from seq2seq.errors import UserError
from seq2seq.settings.checks import IntOrAuto, check_choices, check_ranges, require
from seq2seq.settings.rules import AUTO

SPLITS = ("train", "validation", "test")
RESERVED = ("<unk>", "<s>", "</s>", "<pad>")  # subwords without text that every tokenizer has
_SECRET = re.compile(r"://[^/]*@|[?&][^=&?]*(?:signature|credential|token|key|secret|sig|password)=", re.IGNORECASE)


@dataclass(kw_only=True)
class DataConfig:
    """Where sentence pairs come from and how they are cleaned."""

    src_lang: str = "en"  # code of the language that is translated from
    tgt_lang: str = "es"  # code of the language that is translated into
    # folder or address (s3://, gs://, https://, hf://) that relative paths start from; null: the working directory
    root: str | None = None
    hub: str | None = None  # dataset on the Hugging Face hub, NAME or NAME:CONFIG; null: the text is in files
    # train, validation or test → name of this split on the hub; a split that is not listed is held out of train
    hub_splits: dict[str, str] = field(default_factory=dict)
    # training files: a.tsv, a.csv, a.jsonl, a.tmx, a.parquet, parallel files a.en+a.es, also .gz and .xz; patterns such
    # as *.tsv
    train: list[str] = field(default_factory=list)
    # files as in data.train, each a validation set; scores are means over the sets; [] = data.held_out pairs of train
    validation: list[str] = field(default_factory=list)
    # files as in data.train, each a test set; [] = data.held_out pairs of train
    test: list[str] = field(default_factory=list)
    # names of the source and target columns of CSV, JSONL and Parquet, or numbers of the columns of a TSV, as [2,4];
    # [] = the columns named after the languages, and the two columns of a TSV
    columns: list[str] = field(default_factory=list)
    # order of the columns of a TSV and of data.columns, such as [en, es]; [] = source first, allowed for en→es only
    languages: list[str] = field(default_factory=list)
    held_out: IntOrAuto = AUTO  # pairs of train held out for each missing split; auto: a twentieth, at most 1,000
    # corpora of train, named as in data.weights; each gives data.held_out pairs to a validation set of its own and as
    # many to a test set of its own, besides the sets of data.validation and data.test; [] = none
    held_out_from: list[str] = field(default_factory=list)
    max_length: int = 250  # most subwords of a side; longer training pairs are dropped
    # most characters of the longer side per character of the shorter side, if the longer side has more than 20
    max_ratio: float = 3.0
    max_characters: int = 2000  # most characters of a side; longer training pairs are dropped
    drop_identical: bool = True  # drop training pairs whose two sides are equal
    drop_duplicates: bool = True  # keep only the first of equal training pairs
    language_filter: bool = False  # drop training pairs with a side in another language; needs the extra langid
    language_characters: int = 40  # fewest characters of a side whose language is checked
    language_confidence: float = 0.9  # lowest probability at which a side counts as another language
    # what a malformed line of train does: refuse stops preparation, skip leaves the line out and counts it
    on_bad_line: str = "refuse"
    remove_overlap: bool = True  # drop training pairs that share a side with validation or test
    # corpus → weight of the corpus in the draws; a corpus that is not listed weighs its number of pairs; {} = every
    # pair once an epoch
    weights: dict[str, float] = field(default_factory=dict)
    temperature: float = 1.0  # T: a corpus's share is ∝ size^(1/T); 1 = by size, higher = more of small corpora
    # pairs shuffled and batched together if subword sampling or modifiers give a pair new ids in each epoch
    block: int = 50_000
    cache: str | None = None  # folder of prepared text; null: the environment's SEQ2SEQ_CACHE, else ~/.cache/seq2seq
    # processes that prepare text, and that modify and split pairs in training; the result does not depend on the number
    num_proc: int = 1

    def __post_init__(self) -> None:
        files = [key for key in ("root", "train", "validation", "test") if getattr(self, key)]
        require(
            self.hub is None or not files,
            f"data.hub={self.hub} fetches its own text, so data.{''.join(files[:1])} would not be read: leave it out, "
            "or choose files with data=files (of Tatoeba, with data=tatoeba_files)",
        )
        for place in (self.root or "", *self.train, *self.validation, *self.test):
            require(
                not _SECRET.search(place),
                "an address of data.* has a password or key, which config.yaml and logs would show: leave it out, and "
                "give it by the environment or the storage's own configuration (AWS_ACCESS_KEY_ID, HF_TOKEN, ~/.netrc)",
            )
        for name in self.hub_splits:
            require(name in SPLITS, f"data.hub_splits has {name}: the names are {', '.join(SPLITS)}")
        require(len(self.columns) in (0, 2), f"data.columns={self.columns} must name two columns, source and target")
        require(
            not self.languages or sorted(self.languages) == sorted([self.src_lang, self.tgt_lang]),
            f"data.languages={self.languages} must be data.src_lang={self.src_lang} and data.tgt_lang={self.tgt_lang}, "
            "in the order of the columns",
        )
        check_choices("data.", self, on_bad_line=("refuse", "skip"))
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

    @property
    def is_swapped(self) -> bool:
        """Whether the target's column stands before the source's."""
        return bool(self.languages) and self.languages[0] != self.src_lang


def base_language(code: str) -> str:
    """Return the language of a code in lower case, without script and region: en for EN, en-US and en_GB.UTF-8."""
    return re.split(r"[-_.]", code.strip().lower())[0]


def expand_user(path: str) -> Path:
    """Return a path with `~` and `~NAME` replaced by the home of the user."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UserError(f"{path}: the home of this user is not known here; give the whole path") from error


def cache_root(setting: str | None = None) -> Path:
    """Return the folder of all caches: the setting, else the environment's SEQ2SEQ_CACHE, else ~/.cache/seq2seq."""
    return expand_user(setting or os.environ.get("SEQ2SEQ_CACHE") or "~/.cache/seq2seq")


@dataclass(kw_only=True)
class TokenizerConfig:
    """SentencePiece over both languages jointly, or over each by itself."""

    type: str = "unigram"  # unigram (Kudo 2018) | bpe (Sennrich et al. 2016)
    # whether both languages share one vocabulary and one embedding; false: each language has its own
    joint: bool = True
    vocab_size: IntOrAuto = AUTO  # subwords; auto: 2,000 to 32,000 by the number of training pairs
    byte_fallback: bool = True  # unseen characters become bytes instead of UNK
    character_coverage: float = 0.9999  # share of the text's characters that get a subword of their own
    # characters that get a subword of their own whatever the text has; auto: digits, letters of Europe's Latin
    # alphabets, and symbols of keyboards and typography if vocab_size is 4,000 or more, else none
    required_characters: str = AUTO
    split_digits: bool = True  # whether each digit is a subword, so that a number never seen is spelt with known ones
    input_sentence_size: int = 1_000_000  # sentences that the vocabulary is learnt from, sampled from the text
    # most strings of a pair that are masked: addresses, placeholders, code, emoji and the like, which stay the same,
    # stand as symbols ⟨1⟩ … ⟨n⟩ in training and in translation; auto: 8 if vocab_size is 4,000 or more, else 0 (none)
    masks: IntOrAuto = AUTO
    # words that stay one subword, such as the tag <bt> of synthetic sources; no translation contains these words
    user_symbols: list[str] = field(default_factory=list)
    # a finished tokenizer.model to use, or a folder with two; null: train one on the training texts
    model: str | None = None

    def __post_init__(self) -> None:
        check_choices("tokenizer.", self, type=("unigram", "bpe"))
        require(self.joint or self.model is None, f"tokenizer.model={self.model} is trained: leave out tokenizer.joint")
        check_ranges("tokenizer.", self, vocab_size=(8, 2**31 - 1), input_sentence_size=(1, math.inf), masks=(0, 100))
        check_ranges("tokenizer.", self, character_coverage=(0.98, 1))  # as SentencePiece does
        characters = "" if self.required_characters == AUTO else self.required_characters
        require(
            len(set(characters)) == len(characters)
            and is_normalized("NFC", characters)
            and not re.search(r"[\s▁]", characters),
            f"tokenizer.required_characters={characters!r} must be distinct characters in Unicode's form NFC, without "
            "white space and ▁",
        )
        for symbol in self.user_symbols:
            require(self.user_symbols.count(symbol) == 1, f"tokenizer.user_symbols has {symbol} twice")
            require(not re.fullmatch(r"⟨\d+⟩", symbol), f"tokenizer.user_symbols has {symbol}: see tokenizer.masks")
            require(symbol not in RESERVED, f"tokenizer.user_symbols has {symbol}, which every tokenizer has anyway")
            require(
                symbol.split() == [symbol] and not re.search("[,▁]|^<0x", symbol) and is_normalized("NFC", symbol),
                f"tokenizer.user_symbols has {symbol!r}: a symbol is one word in Unicode's form NFC, without comma or "
                "▁, such as <bt>",
            )
