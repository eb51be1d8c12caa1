"""Marian checkpoints like OPUS-MT's: the same settings, random weights, vocabularies of the bundled corpus."""

import io
import json
import math
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sentencepiece
import torch

if TYPE_CHECKING:
    from transformers import MarianMTModel

ROOT = Path(__file__).parents[1]
SIZES: dict[str, dict[str, Any]] = {  # the sizes of Helsinki-NLP's models on the hub
    "opus-mt": {"d_model": 512, "heads": 8, "ffn": 2048, "layers": (6, 6), "activation_function": "swish"},
    "tc-big": {"d_model": 1024, "heads": 16, "ffn": 4096, "layers": (6, 6), "activation_function": "relu"},
    "tiny": {"d_model": 256, "heads": 8, "ffn": 1536, "layers": (6, 2), "activation_function": "relu"},
}
_ENDING = 0.05  # share of positions where the end mark gets the highest logit


def write_checkpoint(
    folder: Path, size: str, *, vocab_size: int = 0, is_separate: bool = False, **changes: Any
) -> None:
    """Write a model and its vocabulary in the layout of transformers' `save_pretrained`.

    Args:
        folder: the folder to write to; it must exist.
        size: one of SIZES.
        vocab_size: size of the vocabulary, filled with made-up subwords; 0: that of the bundled corpus's vocabulary.
        is_separate: whether each side has its own vocabulary and embedding.
        changes: other settings of MarianConfig.
    """
    sizes = write_vocabulary(folder, vocab_size=vocab_size, is_separate=is_separate)
    marian = random_marian(size, sizes, is_separate=is_separate, **changes)
    marian.save_pretrained(folder)


@torch.no_grad()
def random_marian(size: str, vocabularies: Sequence[int], *, is_separate: bool, **changes: Any) -> "MarianMTModel":
    """Return a model of this size with random weights; no weight has a trivial value such as 0 or 1."""
    from transformers import GenerationConfig, MarianConfig, MarianMTModel

    own = dict(SIZES[size])
    heads, ffn, (encoder, decoder) = own.pop("heads"), own.pop("ffn"), own.pop("layers")
    pad = vocabularies[-1] - 1
    settings = {
        "vocab_size": vocabularies[0], "decoder_vocab_size": vocabularies[-1], "max_position_embeddings": 512,
        "encoder_layers": encoder, "decoder_layers": decoder, "encoder_ffn_dim": ffn, "decoder_ffn_dim": ffn,
        "encoder_attention_heads": heads, "decoder_attention_heads": heads, "scale_embedding": True,
        "pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0, "bos_token_id": 0,
        "forced_eos_token_id": 0, "share_encoder_decoder_embeddings": not is_separate,
        "init_std": 1 / math.sqrt(changes.get("d_model", own["d_model"])),  # gives logits a spread of about 1
    }  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(1)
        marian = MarianMTModel(MarianConfig(**{**settings, **own, **changes})).eval()
        for weights in marian.state_dict().values():
            if weights.ndim < 2:  # norms and biases, which transformers sets to 1 and 0
                weights += 0.1 * torch.randn_like(weights)
        marian.final_logits_bias.normal_(std=0.3)
        logits = marian(
            input_ids=torch.randint(2, min(vocabularies) - 1, (8, 12)),
            decoder_input_ids=torch.randint(2, min(vocabularies) - 1, (8, 20)),
        ).logits
        short = logits[..., 1:].amax(-1) - logits[..., 0]  # gap between the highest logit and the end mark's
        marian.final_logits_bias[0, 0] += short.quantile(_ENDING)
    marian.generation_config = GenerationConfig(
        bad_words_ids=[[pad]], bos_token_id=0, decoder_start_token_id=pad, eos_token_id=0, forced_eos_token_id=0,
        max_length=512, num_beams=4, pad_token_id=pad,
    )  # fmt: skip
    return marian


@cache
def learned() -> tuple[bytes, bytes]:
    """Return SentencePiece models of English and of Spanish, with the special tokens of OPUS-MT's models."""
    pairs = [
        line.split("\t")
        for name in ("grammar", "everyday")
        for line in (ROOT / f"data/bundled/{name}.train.tsv").read_text(encoding="utf-8").splitlines()
    ][::5]
    models = []
    for side in (0, 1):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([pair[side] for pair in pairs]), model_writer=model, vocab_size=500,
            normalization_rule_name="nmt_nfkc", eos_id=0, unk_id=1, bos_id=-1, pad_id=-1, minloglevel=2,
        )  # fmt: skip
        models.append(model.getvalue())
    return models[0], models[1]


def write_vocabulary(
    folder: Path, *, vocab_size: int = 0, is_separate: bool = False, codes: Sequence[str] = ()
) -> list[int]:
    """Write the files of a MarianTokenizer, and return the sizes of its vocabularies.

    As in OPUS-MT's vocabularies, the end mark is first, the unknown token second, and padding last. codes are tokens
    that name target languages, such as `>>spa<<`.
    """
    models = learned()
    for name, model in zip(("source", "target"), models, strict=True):
        (folder / f"{name}.spm").write_bytes(model)
    sides = [_subwords(model) for model in models]
    lists = sides if is_separate else [list(dict.fromkeys([*sides[0], *sides[1]]))]
    settings: dict[str, Any] = {
        "tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "es", "separate_vocabs": is_separate,
        "pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>", "model_max_length": 512,
    }  # fmt: skip
    sizes = []
    for name, known in zip(("vocab.json", "target_vocab.json"), lists, strict=False):
        ordered = ["</s>", "<unk>", *(one for one in known if one not in ("</s>", "<unk>")), *codes]
        ordered += [f"subword{number}" for number in range(len(ordered), vocab_size - 1)]
        ordered.append("<pad>")
        (folder / name).write_text(json.dumps({subword: i for i, subword in enumerate(ordered)}), encoding="utf-8")
        sizes.append(len(ordered))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    pad = sizes[-1] - 1
    generation = {"decoder_start_token_id": pad, "pad_token_id": pad, "eos_token_id": 0, "bad_words_ids": [[pad]]}
    (folder / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    return sizes


def _subwords(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return processor.id_to_piece(list(range(processor.get_piece_size())))


def marian_tokenizer(folder: Path) -> Any:
    """Load transformers' tokenizer from a folder."""
    from transformers import MarianTokenizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers recommends a package that is not needed here
        return MarianTokenizer.from_pretrained(str(folder))
