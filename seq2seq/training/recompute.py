"""Training that keeps fewer values in memory and computes layers twice."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from seq2seq.model.encoder_decoder import EncoderDecoder


def recompute_layers(model: EncoderDecoder) -> None:
    """Keep only each layer's input for the backward pass, which computes the layer again (Chen et al. 2016).

    The same dropout is drawn again, so gradients are the same; validation and search do not change.
    """
    for layer in model.layers():
        layer.forward = functools.partial(_forward, layer.forward)


def _forward(forward: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*arguments, **named)
    return checkpoint(forward, *arguments, use_reentrant=False, **named)
