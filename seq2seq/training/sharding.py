"""Weights, gradients and optimizer state spread over devices (FSDP2; Zhao et al. 2023): each holds a share of them."""

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from seq2seq.model.build import build_model
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.layers import DecoderLayer


def shard(model: EncoderDecoder, mesh: DeviceMesh) -> None:
    """Let each layer gather its weights before it computes and give them back after it, forward and backward.

    The embedding belongs to the whole model, which keeps it gathered until the backward pass is over: it is the output
    projection too. The encoder's output is projected to the decoder layers' keys and values outside of those layers,
    so these projections gather by themselves.
    """
    layers: list[nn.Module] = [*model.encoder_layers, *model.decoder_layers]
    for layer in layers:
        if isinstance(layer, DecoderLayer):
            fully_shard([layer.cross_attention.k_proj, layer.cross_attention.v_proj], mesh=mesh)
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def whole(model: EncoderDecoder) -> EncoderDecoder:
    """The model as translating needs it: itself, or a copy with all weights on this device if they are spread.

    All ranks have to call it together.
    """
    if not isinstance(model, FSDPModule):
        return model
    weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    with torch.device("meta"):
        copied = build_model(model.config, model.vocab_size)
    copied.load_state_dict(weights, assign=True)
    return copied


def own_part(tensor: Tensor) -> Tensor:
    """This rank's share of a spread tensor, or the whole of another; changing it in place changes the tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def full(tensor: Tensor) -> Tensor:
    """The whole of a spread tensor, on every rank."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
