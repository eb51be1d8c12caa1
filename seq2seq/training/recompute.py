"""Memory bought with time: activations that are computed again instead of being kept (Chen et al. 2016)."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from seq2seq.model.encoder_decoder import EncoderDecoder


def recompute_layers(model: EncoderDecoder) -> None:
    """Keep only each layer's input for the backward pass, which then computes the layer once more.

    The same dropout is drawn again, so gradients are the same; validation and search go on as before.
    """
    for layer in model.layers():
        layer.forward = functools.partial(_forward, layer.forward)


def _forward(forward: Callable[..., Any], *arguments: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*arguments)
    return checkpoint(forward, *arguments, use_reentrant=False)
