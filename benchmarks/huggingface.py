"""The contestant `MarianMTModel`, trained and used as Hugging Face's users do."""

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from seq2seq.data.batching import Batch, collate
from seq2seq.settings.missing_packages import require_package
from seq2seq.text.tokenizer import BOS, EOS, PAD, UNK, Tokenizer

with require_package("huggingface"):
    from transformers import MarianMTModel

# Exact search without special tokens, as in this project; transformers' default search stops by a heuristic.
EXACT: dict[str, Any] = {"early_stopping": "never", "suppress_tokens": [PAD, UNK, BOS]}


def make_optimizer(model: torch.nn.Module, learning_rate: float) -> torch.optim.Optimizer:
    """Return a fused AdamW optimizer with the usual betas of translation models."""
    return torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.98), eps=1e-9, fused=True)


def mean_loss(model: MarianMTModel, batch: Batch, smoothing: float) -> Tensor:
    """Return the label-smoothed cross-entropy per target token (nats), from the logits of the whole batch.

    The softmax is in float32, as in transformers' own Trainer with mixed precision. The model fills no cache.
    """
    logits: Tensor = model(
        input_ids=batch.src, attention_mask=batch.src != PAD, decoder_input_ids=batch.tgt_in, use_cache=False
    ).logits
    return F.cross_entropy(
        logits.flatten(0, 1).float(), batch.tgt_out.flatten(), ignore_index=PAD, label_smoothing=smoothing
    )


def update(
    model: MarianMTModel, optimizer: torch.optim.Optimizer, batch: Batch, precision: str = "bf16-mixed"
) -> Tensor:
    """Train on one batch with label smoothing 0.1 and gradients clipped to norm 1; return the loss."""
    with torch.autocast(batch.src.device.type, torch.bfloat16, enabled=precision == "bf16-mixed"):
        loss = mean_loss(model, batch, smoothing=0.1)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def translate(
    model: MarianMTModel, tokenizer: Tokenizer, texts: Sequence[str], *, beam: int, max_length: int, **options: Any
) -> list[str]:
    """Return the translations of one batch, searched as `generate` does."""
    rows = generate(model, tokenizer.encode(texts), beam=beam, max_length=max_length, **options).tolist()
    return tokenizer.decode([without_special(row, max_length) for row in rows])


def generate(
    model: MarianMTModel, sources: Sequence[Sequence[int]], *, beam: int, max_length: int, **options: Any
) -> Any:
    """Return the result of transformers' beam search with length penalty 1 for one batch of source ids without EOS.

    max_length is the most tokens without EOS. Further options are those of transformers' `generate`.
    """
    src = collate([(ids, ()) for ids in sources]).src.to(model.device)
    return cast(Any, model).generate(  # the types of transformers' mixin do not fit its models
        input_ids=src,
        attention_mask=src != PAD,
        num_beams=beam,
        length_penalty=1.0,
        do_sample=False,
        max_new_tokens=max_length + 1,
        **options,
    )


def without_special(row: list[int], limit: int) -> list[int]:
    """Return the tokens between BOS and EOS; without EOS, cut at the limit, which transformers exceeds by one token."""
    row = row[1:]
    return row[: row.index(EOS)] if EOS in row else row[:limit]
