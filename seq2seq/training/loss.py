"""Label-smoothed cross-entropy straight from hidden states, without ever holding a batch's logits."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK = 256  # rows of logits alive at once: at 8,000 pieces and 4 bytes they about fit a CPU core's caches
CHUNK_ELSEWHERE = 4096  # a GPU wants few large products: 131 MB of logits at 8,000 pieces
LEAVES_OUT_PADDING = ("cpu",)  # elsewhere the host would have to wait for the device to learn how many rows are left


def chunk_of(device: torch.device) -> int:
    """Rows of logits that are alive at once on a device."""
    return CHUNK if device.type == "cpu" else CHUNK_ELSEWHERE


def scaled(x: Tensor, factor: Tensor) -> Tensor:
    """Multiply in float32: rounded to bf16, a factor such as 1/768 would be 0.2 % too large."""
    return x.mul(factor) if x.dtype == factor.dtype else x.float().mul_(factor).to(x.dtype)


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Computes gradients along with the loss, chunk by chunk, while a chunk's logits are there anyway."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        counts: Tensor | None,
        smoothing: float,
        with_gradients: bool,
    ) -> tuple[Tensor, Tensor]:
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
        weight = weight.to(hidden.dtype)
        mean_weight = weight.float().mean(0).to(hidden.dtype)  # its product with a row is the mean of the row's logits
        nll, uniform = (hidden.new_zeros((), dtype=torch.float32) for _ in range(2))
        size = chunk_of(hidden.device)
        for start in range(0, hidden.shape[0], size):
            rows, wanted = hidden[start : start + size], targets[start : start + size, None]
            share = 1 if counts is None else counts[start : start + size, None]  # 1 for a real token, 0 for padding
            logits = (rows @ weight.T).float()
            highest = logits.amax(-1, keepdim=True)
            wanted_logits = logits.gather(1, wanted) - highest
            total = (exponentials := logits.sub_(highest).exp_()).sum(-1, keepdim=True)
            nll += ((total.log() - wanted_logits) * share).sum()
            mean_logits = (rows @ mean_weight).float()[:, None]
            uniform += ((total.log() + highest) * share).sum() - (mean_logits * share).sum()
            if not with_gradients:
                continue
            # d loss / d logits = softmax - smoothed target
            grad = exponentials.mul_(1 / total).sub_(smoothing / weight.shape[0])
            grad = grad.scatter_add_(1, wanted, grad.new_full((1, 1), smoothing - 1).expand_as(wanted))
            grad = (grad if counts is None else grad.mul_(share)).to(hidden.dtype)
            torch.matmul(grad, weight, out=grad_hidden[start : start + size])
            grad_weight += grad.T @ rows
        loss = (1 - smoothing) * nll + smoothing * uniform
        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] (decorated)
        grad_loss = grad_outputs[0]
        grad_hidden, grad_weight = ctx.saved_tensors
        return scaled(grad_hidden, grad_loss), grad_weight * grad_loss, None, None, None, None


def cross_entropy(
    hidden: Float[Tensor, "n t d"],
    weight: Float[Tensor, "v d"],
    targets: Int[Tensor, "n t"],
    *,
    pad: int,
    smoothing: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Sums over all real target tokens of the smoothed loss and of the plain one, and the number of those tokens.

    With smoothing ε the target distribution is 1 - ε on the wanted token plus ε spread evenly over the vocabulary
    (Szegedy et al. 2016, §7). Both sums are in nats; gradients flow through the first. Padding rows count nothing; on
    the CPU they are left out before the projection onto the vocabulary. Logits exist for some rows at a time, and
    products run in the hidden states' precision (or autocast's) with the softmax in float32.
    """
    is_real = targets != pad
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    with torch.autocast(device, enabled=False):
        if device in LEAVES_OUT_PADDING:
            rows, wanted, counts = hidden[is_real], targets[is_real], None
        else:
            rows, wanted, counts = hidden.flatten(0, 1), targets.flatten(), is_real.flatten().float()
        with_gradients = torch.is_grad_enabled()
        loss, nll = _ChunkedCrossEntropy.apply(rows.to(dtype), weight, wanted, counts, smoothing, with_gradients)
    return loss, nll, is_real.sum()
