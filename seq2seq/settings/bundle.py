"""The files of a bundle, and the settings in its config.json; imports no Hydra, since translation does not need it."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seq2seq.errors import UserError, shorten
from seq2seq.settings.checks import WAY_OUT, check_ranges, require
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig

FORMAT_VERSIONS = (1, 3)  # that this program reads; a bundle gets the lowest version that can describe the bundle
TWO_TOKENIZERS = 3  # version of a bundle with one tokenizer for each side
WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
SETTINGS = "bundle.json"  # config.json's name in an export for CTranslate2, which has a config.json of its own
ARCHITECTURE = "seq2seq-"  # prefix of config.json's architecture; ModelConfig.architecture has no prefix
_MAX_CONFIG = 1_000_000  # bytes
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")

_LANGUAGE = re.compile(r"[\w.@+-]{1,40}")
_MOST = {  # of a bundle's search, since a bundle may be a stranger's, and the command line can change every setting
    **dict.fromkeys(("beam", "mbr"), 100),
    **dict.fromkeys(("min_length", "max_length_offset", "temperature"), 1000),
    **dict.fromkeys(("min_length_ratio", "max_length_ratio", "length_penalty"), 10),
    **dict.fromkeys(("no_repeat_ngram", "top_k", "batch_tokens"), 1_000_000),
    "seed": 2**63 - 1,  # PyTorch's limit
}
# settings of older versions' searches, and the value that meant off; None: without groups, the setting had no effect
RETIRED = {"coverage_penalty": 0, "repetition_penalty": 1, "groups": 1, "diversity": None}

C = TypeVar("C", ModelConfig, SearchConfig)


@dataclass(frozen=True)
class Calibration:
    """Weights of a logistic regression: how likely a translation is acceptable (`seq2seq.training.calibration`)."""

    bias: float
    mean: float  # of the mean log-probability of a token (nats)
    total: float  # of the sum of log-probabilities (nats)
    length: float  # of the logarithm of the number of tokens

    def confidence(self, score: float, tokens: int) -> float:
        """Return the probability that a translation is acceptable.

        score is its sum of log-probabilities (nats), tokens the number of its tokens, EOS included.
        """
        weights = (self.bias, self.mean, self.total, self.length)
        logit = sum(w * x for w, x in zip(weights, calibration_features(score, tokens), strict=True))
        return 0.5 * (1 + math.tanh(logit / 2))


def calibration_features(score: float, tokens: int) -> tuple[float, float, float, float]:
    """Return what the weights of `Calibration` are multiplied with."""
    return 1.0, score / tokens, score, math.log(tokens)


@dataclass
class BundleConfig:
    """The settings of a bundle."""

    model: ModelConfig
    search: SearchConfig
    src_lang: str = "en"
    tgt_lang: str = "es"
    trained_length: int | None = None  # source tokens that 99 of 100 training pairs do not exceed; None: not known
    calibration: Calibration | None = None  # for confidences; None: the model has none

    def __post_init__(self) -> None:
        for key, code in (("src_lang", self.src_lang), ("tgt_lang", self.tgt_lang)):
            is_code = _LANGUAGE.fullmatch(code) is not None
            require(is_code, f"{key}={code!r:.60} is no language: give a code such as en or pt-BR")
        check_ranges("search.", self.search, **{name: (-math.inf, most) for name, most in _MOST.items()})
        check_ranges("", self, trained_length=(1, 1_000_000))


def is_export(folder: Path) -> bool:
    """Return whether the folder is an export for CTranslate2."""
    return (folder / SETTINGS).is_file()


def is_huggingface(folder: Path) -> bool:
    """Return whether the folder has a model in Hugging Face's layout."""
    try:
        return "model_type" in json.loads(read_bounded(folder / CONFIG, _MAX_CONFIG))
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def is_hub_name(source: str) -> bool:
    """Return whether a name can only be a name on the Hugging Face hub: OWNER/NAME, where OWNER is no folder here."""
    owner, _, _ = source.partition("/")
    return bool(_HUB_NAME.fullmatch(source)) and owner != "runs" and not Path(owner).exists()


def read_bounded(path: Path, most: int) -> bytes:
    """Read a file of at most `most` bytes."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is no file")
    if (size := path.stat().st_size) > most:
        raise UserError(f"{path} has {size:,} bytes: it is damaged, or of another kind")
    return path.read_bytes()


def parse_json(content: bytes, path: Path) -> Any:
    """Return the values of a JSON file's content; errors use the path."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:  # numbers with thousands of digits also raise a ValueError
        raise UserError(f"{path} is damaged: it is no JSON; copy it again") from error


def read_config(path: Path) -> tuple[dict[str, Any], BundleConfig]:
    """Read and check config.json; return its plain values, and its settings as dataclasses."""
    try:
        values = parse_json(read_bounded(path, _MAX_CONFIG), path)
    except FileNotFoundError as error:
        raise UserError(f"{path.parent} is not a whole model: {path.name} is missing") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    if isinstance(values, dict) and "model_type" in values:
        advice = f"import it with `seq2seq import huggingface {path.parent} --output FOLDER`"
        raise UserError(f"{path.parent} is a model in Hugging Face's layout: {advice}")
    if not isinstance(values, dict) or not str(values.get("architecture")).startswith(ARCHITECTURE):
        raise UserError(f"{path} is not a model of this program: its architecture is no {ARCHITECTURE}…")
    version = values.get("format_version")
    if type(version) is not int or version not in FORMAT_VERSIONS:
        message = f"{path} has format_version={version!r:.80}, this version reads"
        raise UserError(f"{message} {' and '.join(map(str, FORMAT_VERSIONS))}: use the version that wrote it")
    types = dict.fromkeys(("src_lang", "tgt_lang", "tokenizer_sha256"), str)
    types |= {"vocab_size": int, "model": dict, "search": dict}
    for key, kind in types.items():
        if not isinstance(values.get(key), kind):
            raise UserError(f"{path} is damaged: {key}={values.get(key)!r:.80}, expected {kind.__name__}")
    for key in ("trained_length", "source_vocab_size"):
        value = values.get(key)
        if value is not None and (type(value) is not int or value < 1):
            raise UserError(f"{path} is damaged: {key}={value!r:.80}, expected a positive whole number")
    languages, length = (values["src_lang"], values["tgt_lang"]), values.get("trained_length")
    calibration = _read_calibration(path, values.get("calibration"))
    search = without_retired(values["search"], path)
    try:
        architecture = values["architecture"].removeprefix(ARCHITECTURE)
        model = config_from_plain(ModelConfig, {**values["model"], "architecture": architecture})
        search = config_from_plain(SearchConfig, search)
        return values, BundleConfig(model, search, *languages, length, calibration)
    except UserError as error:
        is_damaged = WAY_OUT not in str(error)
        raise UserError(f"{path}{' is damaged' if is_damaged else ''}: {shorten(error)}") from error


def _read_calibration(path: Path, values: object) -> Calibration | None:
    if values is None:
        return None
    names = {field.name for field in fields(Calibration)}
    weights = values if isinstance(values, dict) else {}
    if weights.keys() != names or not all(type(x) in (int, float) and abs(x) < 1e9 for x in weights.values()):
        expected = f"expected the numbers {', '.join(sorted(names))}"
        raise UserError(f"{path} is damaged: calibration={values!r:.80}, {expected}")
    return Calibration(**weights)


def without_retired(search: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return search settings without those that older versions wrote and this one lacks; errors use the path."""
    for key, off in RETIRED.items():
        if (value := search.get(key, off)) != off and off is not None:
            advice = f"set it to {off} there, or use the version that wrote it"
            raise UserError(f"{path}: search.{key}={value!r:.80} is not known to this version: {advice}")
    return {key: value for key, value in search.items() if key not in RETIRED}


def config_from_plain(schema: type[C], values: Mapping[str, Any]) -> C:
    """Return a bundle's settings of the model or of the search from their plain values."""
    if "${" in json.dumps(values):  # OmegaConf would put the environment's values in
        raise UserError("a setting has ${, but settings are plain values")
    try:
        merged = OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.create(dict(values)))
        settings = OmegaConf.to_object(merged)
    except (OmegaConfBaseException, AssertionError, OverflowError, ValueError) as error:
        raise UserError(first_line(error)) from error
    assert isinstance(settings, schema)
    return settings


def first_line(error: Exception) -> str:
    """Return the first line of an error's text."""
    return str(error).strip().splitlines()[0]
