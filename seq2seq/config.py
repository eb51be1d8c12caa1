"""The typed schema of every setting, and its checks; the only file that knows Hydra and OmegaConf.

`conf/` holds values, these classes hold types and defaults. After `from_hydra` there is no `DictConfig` any more.
"""

import dataclasses
import math
import re
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seq2seq.errors import UserError

# What may say "auto" in the settings; a run that has begun knows a number, so that is what it is to its readers.
if TYPE_CHECKING:
    NumberOrAuto = int
else:
    NumberOrAuto = int | str
_MAX_YAML = 1_000_000  # bytes


def require(condition: bool, message: str) -> None:
    """Refuse a setting.

    Raises:
        UserError: condition is false.
    """
    if not condition:
        raise UserError(message)


def require_choice(key: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not one of the choices.

    Raises:
        UserError: value is not among choices.
    """
    require(value in choices, f"{key}={value} is not known: choose one of {', '.join(choices)}")


def require_at_least(key: str, value: float | int, minimum: float | int) -> None:
    """Refuse a number below its minimum (NaN too).

    Raises:
        UserError: value is below minimum.
    """
    require(value >= minimum, f"{key}={value} must be at least {minimum:g}")


def require_at_most(key: str, value: float | int, maximum: float | int) -> None:
    """Refuse a number above its maximum, before memory is taken for it.

    Raises:
        UserError: value is above maximum.
    """
    require(value <= maximum, f"{key}={value} must be at most {maximum}")


@dataclass(kw_only=True)
class DataConfig:
    """Where sentence pairs come from and how they are cleaned."""

    src_lang: str = "en"
    tgt_lang: str = "es"
    root: str | None = None  # folder that relative paths start from; null: the working directory, or the hub if set
    hub: str | None = None  # set on the Hugging Face hub, NAME or NAME:CONFIG; used when root is null
    hub_splits: dict[str, str] = field(
        default_factory=dict
    )  # our split → the hub's; one not named is held out of train
    train: list[str] = field(default_factory=list)  # a.tsv, a.csv, a.jsonl, a.parquet, a.en+a.es, globs; also .gz, .xz
    validation: list[str] = field(default_factory=list)
    test: list[str] = field(default_factory=list)
    columns: list[str] = field(
        default_factory=list
    )  # source and target column of CSV, JSONL, Parquet; [] = by language
    languages: list[str] = field(
        default_factory=list
    )  # of a TSV's two columns and of data.columns, as [en, es]; [] = source and target as they stand
    held_out: int = 1000  # pairs taken out of train for a split that is not given
    max_length: int = 250  # tokens a side; longer training pairs are dropped
    max_ratio: float = 3.0  # characters of the longer side per character of the shorter (when it has more than 20)
    max_characters: int = 2000
    drop_identical: bool = True
    drop_duplicates: bool = True
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
    cache: str = "~/.cache/seq2seq"  # prepared text, by content; the environment's SEQ2SEQ_CACHE comes first
    num_proc: int = 1  # processes that prepare text; the result does not depend on it

    def __post_init__(self) -> None:
        require(len(self.columns) in (0, 2), f"data.columns={self.columns} must name two columns, source and target")
        require(
            not self.languages or sorted(self.languages) == sorted([self.src_lang, self.tgt_lang]),
            f"data.languages={self.languages} must be data.src_lang={self.src_lang} and data.tgt_lang={self.tgt_lang}, "
            "in the order of the columns",
        )
        require_at_least("data.held_out", self.held_out, 1)
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

    type: str = "unigram"  # unigram | bpe
    vocab_size: int = 8000
    byte_fallback: bool = True  # unseen characters become bytes instead of UNK
    character_coverage: float = 0.9999
    input_sentence_size: int = 1_000_000  # sentences sampled for training it
    user_symbols: list[str] = field(
        default_factory=list
    )  # words that stay one piece, such as the tag <bt> of synthetic sources; no translation contains them
    model: str | None = None  # a finished tokenizer.model to use; null: train one on the training texts

    def __post_init__(self) -> None:
        require_choice("tokenizer.type", self.type, ("unigram", "bpe"))
        require_at_least("tokenizer.vocab_size", self.vocab_size, 8)
        require(
            0 < self.character_coverage <= 1, f"tokenizer.character_coverage={self.character_coverage} not in (0, 1]"
        )
        require_at_least("tokenizer.input_sentence_size", self.input_sentence_size, 1)
        for symbol in self.user_symbols:
            require(
                symbol.split() == [symbol] and "," not in symbol,
                f"tokenizer.user_symbols has {symbol!r}: a symbol is one word without comma, such as <bt>",
            )


@dataclass(kw_only=True)
class ModelConfig:
    """The Transformer's sizes and style; defaults are the base model as published (Vaswani et al. 2017)."""

    d_model: int = 512  # width of every residual stream
    num_heads: int = 8
    d_ff: int = (
        2048  # hidden width of the feed-forward network; SwiGLU's is two thirds of it, so that both cost the same
    )
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    dropout: float = 0.1  # on embeddings and every sublayer's output
    attention_dropout: float = 0.0  # on attention weights
    ffn_dropout: float = 0.0  # on the feed-forward network's hidden units
    norm: str = "layernorm"  # layernorm | rmsnorm
    norm_position: str = "post"  # post | pre
    activation: str = "relu"  # relu | swiglu
    positions: str = "sinusoidal"  # sinusoidal | rotary
    bias: bool = True  # in linear layers

    def __post_init__(self) -> None:
        for key in ("d_model", "num_heads", "d_ff", "num_encoder_layers", "num_decoder_layers"):
            require_at_least(f"model.{key}", getattr(self, key), 1)
            require_at_most(f"model.{key}", getattr(self, key), 1000 if key.endswith("layers") else 1 << 18)
        require(
            self.d_model % self.num_heads == 0,
            f"model.d_model={self.d_model} must be a multiple of model.num_heads={self.num_heads}",
        )
        require(self.d_model % 2 == 0, f"model.d_model={self.d_model} must be even: positions come in pairs")
        for key in ("dropout", "attention_dropout", "ffn_dropout"):
            require(0 <= getattr(self, key) < 1, f"model.{key}={getattr(self, key)} must be in [0, 1)")
        require_choice("model.norm", self.norm, ("layernorm", "rmsnorm"))
        require_choice("model.norm_position", self.norm_position, ("post", "pre"))
        require_choice("model.activation", self.activation, ("relu", "swiglu"))
        require_choice("model.positions", self.positions, ("sinusoidal", "rotary"))
        if self.positions == "rotary":
            channels = self.d_model // self.num_heads
            require(channels % 2 == 0, f"model.d_model/num_heads={channels} must be even for rotary positions")


@dataclass(kw_only=True)
class SearchConfig:
    """How translations are searched: in training's validation, and as the bundle's default."""

    beam: int = 5
    length_penalty: float = 1.0  # α in score / length^α, length counting EOS
    max_length_ratio: float = 2.0  # at most ratio · source tokens + offset target tokens
    max_length_offset: int = 20
    min_length_ratio: float = 0.0  # at least ratio · source tokens + min_length target tokens
    min_length: int = 0
    no_repeat_ngram: int = 0  # no sequence of so many tokens twice; 0 = off
    repetition_penalty: float = 1.0  # factor on log-probabilities of tokens that were there before
    coverage_penalty: float = 0.0  # β of Wu et al. 2016, for source tokens attended to too little
    early_stopping: bool = False  # end when nothing is better at its present length; quicker, and no longer exact
    groups: int = 1  # of diverse beam search, beam / groups hypotheses each
    diversity: float = 0.5  # nats off a token for every earlier group that chose it
    sampling: bool = False  # draw tokens instead of searching
    temperature: float = 1.0  # of the drawn distribution
    top_k: int = 0  # draw from the k likeliest tokens; 0 = all
    top_p: float = 1.0  # draw from the likeliest tokens of so much probability together
    seed: int = 1
    mbr: int = 0  # hypotheses from which the one of least expected risk is chosen; 0 = off
    batch_tokens: int = 4096  # source tokens a batch, times the beam, padding included

    def __post_init__(self) -> None:
        for key in ("length_penalty", "max_length_ratio", "min_length_ratio", "min_length", "no_repeat_ngram"):
            require_at_least(f"search.{key}", getattr(self, key), 0)
        for key in ("coverage_penalty", "diversity", "top_k", "mbr", "seed"):
            require_at_least(f"search.{key}", getattr(self, key), 0)
        for key in ("beam", "max_length_offset", "groups", "repetition_penalty", "batch_tokens"):
            require_at_least(f"search.{key}", getattr(self, key), 1)
        limits = {"beam": 1000, "mbr": 10_000, "max_length_ratio": 1000, "max_length_offset": 100_000}
        for key, maximum in {**limits, "min_length": 100_000, "min_length_ratio": 1000, "batch_tokens": 10**9}.items():
            require_at_most(f"search.{key}", getattr(self, key), maximum)
        require(
            self.beam % self.groups == 0,
            f"search.beam={self.beam} must be a multiple of search.groups={self.groups}",
        )
        require(self.temperature > 0, f"search.temperature={self.temperature} must be greater than 0")
        require(0 < self.top_p <= 1, f"search.top_p={self.top_p} must be in (0, 1]")


@dataclass(kw_only=True)
class SubwordSamplingConfig:
    """Training texts split into subwords anew each time they are seen, at random (both sides)."""

    alpha: float = 0.0  # unigram: smoothing of the draws (Kudo 2018), 0.1-0.5, smaller = more varied; 0 = off;
    # bpe: share of merges left out (BPE dropout, Provilkov et al. 2020), 0.1 = as published
    nbest: int = -1  # unigram: draw from so many likeliest segmentations; -1 = from all

    def __post_init__(self) -> None:
        key = "training.subword_sampling"
        require(0 <= self.alpha <= 1, f"{key}.alpha={self.alpha} must be in [0, 1]")
        require(self.nbest == -1 or self.nbest > 1, f"{key}.nbest={self.nbest} must be at least 2, or -1 for all")


@dataclass(kw_only=True)
class NoiseConfig:
    """Training sources spoilt as users spoil them; each rate is the share of source lines that are changed so."""

    case: float = 0.0  # all lower case, ALL CAPITALS or Every Word With One
    typos: float = 0.0  # letters swapped, left out, doubled or from a neighbouring key: one word in ten
    punctuation: float = 0.0  # without the final . ? ! or …

    def __post_init__(self) -> None:
        for key in ("case", "typos", "punctuation"):
            value = getattr(self, key)
            require(0 <= value <= 1, f"training.noise.{key}={value} must be in [0, 1]")

    @property
    def is_on(self) -> bool:
        """Whether any line is ever changed."""
        return max(self.case, self.typos, self.punctuation) > 0


@dataclass(kw_only=True)
class TrainingConfig:
    """How batches become weights."""

    max_tokens: NumberOrAuto = 4096  # a batch's source or target positions, padding included, on each device; or auto
    learning_rate: float = 7e-4  # at its peak
    schedule: str = "inverse_sqrt"  # inverse_sqrt | cosine | linear | constant
    warmup_steps: int = 4000  # updates of linear rise
    final_rate: float = 0.0  # share of the peak that cosine and linear end at
    betas: list[float] = field(default_factory=lambda: [0.9, 0.98])
    eps: float = 1e-9
    weight_decay: float = 0.0
    clip_norm: float = 1.0  # of the gradient per target token; 0 = no clipping
    label_smoothing: float = 0.1
    r_drop: float = 0.0  # α of R-Drop (Liang et al. 2021): how alike two dropouts' predictions have to be; 0 = off
    subword_sampling: SubwordSamplingConfig = field(default_factory=SubwordSamplingConfig)
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    accumulate: int = 1  # batches an update
    activation_checkpointing: bool = False  # less memory, more time: layers are computed again for the backward pass
    ema_decay: float = 0.0  # exponential moving average of the weights, a update's share kept; 0 = off
    final_weights: str = "last"  # of the bundle: last | best | average (of the kept best) | ema
    monitor: str = "bleu"  # what best and early stopping look at: bleu | loss, of validation
    keep_best: int = 1  # checkpoints
    patience: int = 0  # validations without improvement before training stops; 0 = never
    bleu_sentences: int = 200  # validation sentences translated for BLEU; 0 = none
    sample_translations: int = 3  # of them shown in the log
    freeze: list[str] = field(
        default_factory=list
    )  # parts that are not trained: embedding, encoder, decoder, encoder.0, decoder.2, …
    lora_rank: int = 0  # of low-rank adapters (Hu et al. 2022), trained instead of the weights; 0 = off
    lora_alpha: float = 16.0  # adapters count alpha / rank
    lora_dropout: float = 0.0  # on the adapters' input
    lora_targets: list[str] = field(default_factory=lambda: ["q_proj", "v_proj"])  # linear layers that get adapters

    def __post_init__(self) -> None:
        if self.max_tokens != "auto":
            require(
                not isinstance(self.max_tokens, str), f"training.max_tokens={self.max_tokens} must be a number or auto"
            )
            require_at_least("training.max_tokens", self.max_tokens, 16)
        for key, minimum in (("accumulate", 1), ("keep_best", 0), ("patience", 0)):
            require_at_least(f"training.{key}", getattr(self, key), minimum)
        for key in ("learning_rate", "warmup_steps", "weight_decay", "clip_norm", "bleu_sentences"):
            require_at_least(f"training.{key}", getattr(self, key), 0)
        for key in ("r_drop", "lora_rank"):
            require_at_least(f"training.{key}", getattr(self, key), 0)
        require(self.lora_alpha > 0, f"training.lora_alpha={self.lora_alpha} must be greater than 0")
        require(0 <= self.lora_dropout < 1, f"training.lora_dropout={self.lora_dropout} must be in [0, 1)")
        require_choice("training.schedule", self.schedule, ("inverse_sqrt", "cosine", "linear", "constant"))
        require_choice("training.final_weights", self.final_weights, ("last", "best", "average", "ema"))
        require_choice("training.monitor", self.monitor, ("bleu", "loss"))
        require(len(self.betas) == 2, f"training.betas={self.betas} must be two numbers")
        for key in ("label_smoothing", "ema_decay"):
            require(0 <= getattr(self, key) < 1, f"training.{key}={getattr(self, key)} must be in [0, 1)")
        require(
            self.final_weights != "ema" or self.ema_decay > 0,
            "training.final_weights=ema needs training.ema_decay above 0",
        )
        require(
            self.ema_decay == 0 or self.final_weights != "last",
            "training.ema_decay above 0 averages the weights: choose training.final_weights=ema, best or average",
        )
        require(
            self.monitor != "bleu" or self.bleu_sentences > 0,
            "training.monitor=bleu needs training.bleu_sentences above 0 (or choose training.monitor=loss)",
        )
        require(
            self.final_weights not in ("best", "average") or self.keep_best > 0,
            f"training.final_weights={self.final_weights} needs training.keep_best of at least 1",
        )


@dataclass(kw_only=True)
class TrainerConfig:
    """Where and how long training runs."""

    accelerator: str = "auto"  # auto | cpu | gpu
    devices: int = 1  # on each node
    num_nodes: int = 1
    strategy: str = "auto"  # auto | ddp | fsdp (weights and optimizer spread over the devices)
    precision: str = "auto"  # auto | 32-true | bf16-mixed; auto: bf16 where the device multiplies it quickly
    compile: bool = False  # training's kernels made for this model by torch.compile; minutes at the beginning
    max_steps: int = 100_000  # updates
    max_time: str | None = None  # days:hours:minutes:seconds of training, validation included
    validate_every: int = 1000  # updates
    checkpoint_every: int = 1000  # updates
    checkpoint_minutes: float | None = None  # since the last checkpoint; null: only after so many updates
    keep_last: int = 1  # checkpoints to go on from, besides training.keep_best
    log_every: int = 50  # updates
    progress_bar: bool = True  # when the standard error is a terminal

    def __post_init__(self) -> None:
        require_choice("trainer.accelerator", self.accelerator, ("auto", "cpu", "gpu"))
        require_choice("trainer.strategy", self.strategy, ("auto", "ddp", "fsdp"))
        require_choice("trainer.precision", self.precision, ("auto", "32-true", "bf16-mixed"))
        keys = ("devices", "num_nodes", "max_steps", "validate_every", "checkpoint_every", "keep_last", "log_every")
        for key in keys:
            require_at_least(f"trainer.{key}", getattr(self, key), 1)
        if self.checkpoint_minutes is not None:
            require(
                0 < self.checkpoint_minutes < math.inf,
                f"trainer.checkpoint_minutes={self.checkpoint_minutes} must be greater than 0 (or null)",
            )
        self.duration()

    def duration(self) -> timedelta | None:
        """The time limit, or None.

        Raises:
            UserError: max_time is not days:hours:minutes:seconds.
        """
        if self.max_time is None:
            return None
        parts = self.max_time.split(":")
        require(
            len(parts) == 4 and all(part.isdigit() for part in parts),
            f"trainer.max_time={self.max_time} must be days:hours:minutes:seconds, as 00:00:25:00",
        )
        days, hours, minutes, seconds = map(int, parts)
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


@dataclass(kw_only=True)
class Config:
    """A whole run."""

    name: str | None = None  # folder under runs/; null: the experiment's name and the time
    seed: int = 1
    resume: str | None = None  # a run's folder, to go on with it
    init: str | None = None  # a run's or bundle's folder whose weights, sizes and vocabulary training starts from
    resume_lr: float | None = None  # on resume: the peak learning rate from here on, in training.learning_rate's place
    experiment_name: str = "run"
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        require(
            self.trainer.strategy != "fsdp" or self.training.ema_decay == 0,
            "trainer.strategy=fsdp keeps no running average of the weights: use trainer.strategy=ddp, or set "
            "training.ema_decay=0 training.final_weights=last",
        )
        require(
            self.trainer.strategy != "fsdp" or self.training.lora_rank == 0,
            "trainer.strategy=fsdp trains whole weights: use trainer.strategy=ddp with training.lora_rank",
        )
        for key in ("name", "experiment_name"):  # they become folders under runs/
            value = getattr(self, key)
            require(
                value is None or (re.fullmatch(r"[^\W_][\w.+=,@ -]{0,199}", value) is not None and value != "latest"),
                f"{key}={value!r:.60} cannot be a folder's name: use letters, digits and . _ - + = , @, "
                "beginning with a letter or digit (and not latest)",
            )
        if self.resume_lr is not None:
            require(
                self.resume is not None, "resume_lr= changes a resumed run's learning rate: give resume=runs/NAME too"
            )
            require(0 < self.resume_lr < math.inf, f"resume_lr={self.resume_lr} must be greater than 0")
        require(
            not self.trainer.compile
            or (self.trainer.strategy != "fsdp" and not self.training.activation_checkpointing),
            "trainer.compile=true decides itself what to compute again and what to gather: leave out "
            "training.activation_checkpointing, and use trainer.strategy=ddp",
        )


def register_schema() -> None:
    """Tell Hydra the types, so that an unknown key or a wrong type stops at composition."""
    ConfigStore.instance().store(name="schema", node=Config)


def from_hydra(cfg: DictConfig) -> Config:
    """The composed configuration as checked dataclasses.

    Raises:
        UserError: a value is missing or out of its range; the message names the key.
    """
    try:
        config = OmegaConf.to_object(cfg)
    except OmegaConfBaseException as error:
        raise UserError(str(error).strip().splitlines()[0]) from error
    assert isinstance(config, Config)
    return config


def to_plain(config: object) -> dict[str, Any]:
    """A dataclass of settings as plain values, for YAML and JSON."""
    assert dataclasses.is_dataclass(config)
    assert not isinstance(config, type)
    return dataclasses.asdict(config)


def load_config(folder: str, overrides: list[str], option: str = "resume=") -> Config:
    """Read a run's config.yaml again, with `key=value` overrides on top, to resume it.

    option is what the user gave the folder by, for errors.

    Raises:
        UserError: there is no such run, or an override or the file has an unknown key or a wrong value.
    """
    path = Path(folder) / "config.yaml"
    if not path.is_file():
        raise UserError(f"{option}{folder}: there is no run (no {path})")
    if any(override.startswith("init=") for override in overrides):
        raise UserError("init= cannot be changed on resume: the weights come from the checkpoint")
    for group in ("data", "tokenizer", "model", "training", "search", "trainer", "experiment"):
        if any(override.startswith(f"{group}=") for override in overrides):
            raise UserError(f"{group}= cannot be changed on resume: give single values, as {group}.key=value")
    if any(override.startswith("training.learning_rate=") for override in overrides):
        raise UserError("training.learning_rate= cannot be changed on resume: if you mean to, say resume_lr=")
    try:
        settings = _plain_yaml(path)
        saved = OmegaConf.merge(OmegaConf.structured(Config), settings, OmegaConf.from_dotlist(overrides))
    except (OmegaConfBaseException, yaml.YAMLError, UnicodeDecodeError, OSError, RecursionError) as error:
        raise UserError(f"{path}: {str(error).strip().splitlines()[0]}") from error
    assert isinstance(saved, DictConfig)
    saved.resume = folder
    config = from_hydra(saved)
    if config.resume_lr is not None:
        config.training.learning_rate, config.resume_lr = config.resume_lr, None
    return config


def _plain_yaml(path: Path) -> dict[str, Any]:
    """A YAML file of plain values: no tags, which would name classes, and no anchors, which would multiply.

    Raises:
        UserError: there are such, or the file holds something else than settings.
    """
    if path.stat().st_size > _MAX_YAML:
        raise UserError(f"{path} has {path.stat().st_size:,} bytes: it is no config.yaml of train.py")
    text = path.read_text(encoding="utf-8")
    if any(isinstance(token, yaml.AliasToken | yaml.AnchorToken | yaml.TagToken) for token in yaml.scan(text)):
        raise UserError(f"{path} has tags or anchors, which train.py never writes: it is forged")
    settings = yaml.safe_load(text)
    if not isinstance(settings, dict) or "${" in text:
        raise UserError(f"{path} holds no plain settings: it is forged or damaged")
    return settings


def model_config_from_plain(values: dict[str, Any]) -> ModelConfig:
    """A model's settings out of a bundle's plain values.

    Raises:
        UserError: a key is unknown or a value has the wrong type or range.
    """
    return _typed(ModelConfig, values)


def search_config_from_plain(values: dict[str, Any]) -> SearchConfig:
    """A bundle's search defaults out of its plain values.

    Raises:
        UserError: a key is unknown or a value has the wrong type or range.
    """
    return _typed(SearchConfig, values)


def _typed(schema: type, values: dict[str, Any]) -> Any:
    try:
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.create(values)))
    except (OmegaConfBaseException, AssertionError, ValueError) as error:
        raise UserError(str(error).strip().splitlines()[0]) from error
