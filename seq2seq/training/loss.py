"""Label-smoothed cross-entropy and R-Drop from hidden states, without holding all logits of a batch at once."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK = 256  # rows of logits held at once: with 8,000 subwords of 4 bytes they roughly fit into a CPU core's caches
CHUNK_ELSEWHERE = 16_384  # a GPU prefers few large products: 1 GB of float32 logits with 16,000 subwords
LEAVES_OUT_PADDING = ("cpu",)  # elsewhere the host would wait for the device to count the remaining rows


def chunk_of(device: torch.device) -> int:
    """Return the number of rows of logits that are held at once on a device."""
    return CHUNK if device.type == "cpu" else CHUNK_ELSEWHERE


def _scaled(x: Tensor, factor: Tensor) -> Tensor:
    """Return x · factor, computed in float32: rounded to bf16, a factor such as 1/768 would be 0.2 % too large."""
    return x.mul(factor) if x.dtype == factor.dtype else x.float().mul_(factor).to(x.dtype)


def _cross_entropy_of_chunk(
    rows: Float[Tensor, "n d"],
    weight: Float[Tensor, "v d"],
    mean_weight: Float[Tensor, " d"],
    bias: Float[Tensor, " v"] | None,
    wanted: Int[Tensor, "n 1"],
    share: Float[Tensor, "n 1"] | int,
    smoothing: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the plain loss and the loss against an even distribution, both summed, and the gradient of the logits.

    A product with mean_weight is the mean of a row's logits. share is 1 for a real token and 0 for padding.
    """
    logits = (rows @ weight.T).float()
    logits = logits if bias is None else logits.add_(bias)
    highest = logits.amax(-1, keepdim=True)
    wanted_logits = logits.gather(1, wanted) - highest
    total = (exponentials := logits.sub_(highest).exp_()).sum(-1, keepdim=True)
    nll = ((total.log() - wanted_logits) * share).sum()
    mean_logits = (rows @ mean_weight).float()[:, None] + (0.0 if bias is None else bias.mean())
    uniform = ((total.log() + highest - mean_logits) * share).sum()
    # d loss / d logits = softmax - smoothed target
    grad = exponentials.mul_(share / total).sub_(share * (smoothing / weight.shape[0]))
    grad = grad.scatter_add_(1, wanted, torch.full_like(total, smoothing - 1) * share)
    return nll, uniform, grad


def _r_drop_of_chunk(
    rows: Float[Tensor, "n2 d"],
    weight: Float[Tensor, "v d"],
    bias: Float[Tensor, " v"] | None,
    wanted: Int[Tensor, "n 1"],
    share: Float[Tensor, "n 1"] | int,
    smoothing: float,
    alpha: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the means of `_cross_entropy_of_chunk` over both passes, the divergence, and the logits' gradient."""
    logits = (rows @ weight.T).to(torch.promote_types(rows.dtype, torch.float32))
    logits = (logits if bias is None else logits + bias).requires_grad_()
    with torch.enable_grad():
        log_probs = logits.log_softmax(-1).unflatten(0, (2, -1))
        nll = -(log_probs.gather(-1, wanted.expand(2, -1, 1)) * share).sum() / 2
        uniform = -(log_probs.mean(-1, keepdim=True) * share).sum() / 2
        log_p, log_q = log_probs
        both_ways = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1, keepdim=True)  # KL(p‖q) + KL(q‖p)
        divergence = (both_ways * share).sum() / 2
        (grad,) = torch.autograd.grad((1 - smoothing) * nll + smoothing * uniform + alpha / 2 * divergence, logits)
    return nll, uniform, divergence, grad


class _ChunkedLoss(torch.autograd.Function):
    """Computes the gradients together with the loss, while a chunk's logits are in memory."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,  # (n, d), or (2, n, d) for the two passes of R-Drop
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        counts: Tensor | None,
        smoothing: float,
        alpha: float,
        with_gradients: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        grad_hidden, grad_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        weight = weight.to(hidden.dtype)
        mean_weight = weight.float().mean(0).to(hidden.dtype)
        sums = torch.zeros(3, dtype=torch.promote_types(hidden.dtype, torch.float32), device=hidden.device)
        size = chunk_of(hidden.device) // (hidden.ndim - 1)  # the logits of both passes are held at once
        for start in range(0, len(targets), size):
            part = slice(start, start + size)
            rows, wanted = hidden[..., part, :].flatten(0, -2), targets[part, None]
            share = 1 if counts is None else counts[part, None]  # 1 for a real token, 0 for padding
            if hidden.ndim == 3:
                *losses, grad = _r_drop_of_chunk(rows, weight, bias, wanted, share, smoothing, alpha)
            else:
                *losses, grad = _cross_entropy_of_chunk(rows, weight, mean_weight, bias, wanted, share, smoothing)
            sums[: len(losses)] += torch.stack(losses)
            if with_gradients:
                grad = grad.to(rows.dtype)
                grad_hidden[..., part, :] = (grad @ weight).view_as(hidden[..., part, :])
                grad_weight += grad.T @ rows
        nll, uniform, divergence = sums.unbind()
        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.mark_non_differentiable(nll, divergence)
        loss = (1 - smoothing) * nll + smoothing * uniform
        return loss + alpha / 2 * divergence if hidden.ndim == 3 else loss, nll, divergence

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] (decorated)
        grad_loss = grad_outputs[0]
        grad_hidden, grad_weight = ctx.saved_tensors
        return _scaled(grad_hidden, grad_loss), grad_weight * grad_loss, None, None, None, None, None, None


def _real_rows(hidden: Tensor, targets: Tensor, pad: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the rows of hidden states, their targets, and 1 for each real token and 0 for padding.

    On the CPU the rows leave out padding, and None replaces the ones and zeros.
    """
    is_real, device = targets != pad, hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    if device in LEAVES_OUT_PADDING:
        return hidden[..., is_real, :].to(dtype), targets[is_real], None
    return hidden.flatten(-3, -2).to(dtype), targets.flatten(), is_real.flatten().float()


def cross_entropy(
    hidden: Float[Tensor, "n t d"],
    weight: Float[Tensor, "v d"],
    targets: Int[Tensor, "n t"],
    *,
    pad: int,
    smoothing: float = 0.0,
    bias: Float[Tensor, " v"] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sums of the smoothed loss and of the plain loss over all real target tokens, and the number of tokens.

    With smoothing ε the target distribution is 1 - ε on the wanted token plus ε spread evenly over the vocabulary
    (Szegedy et al. 2016, §7). Both sums are in nats; gradients flow through the first. Padding adds nothing to the
    sums; on the CPU it is left out before the projection onto the vocabulary. Logits exist for some rows at a time.
    Products are computed in the hidden states' precision (or autocast's), and the softmax in float32. The logits' bias
    is not trained.
    """
    rows, wanted, counts = _real_rows(hidden, targets, pad)
    with torch.autocast(hidden.device.type, enabled=False):
        loss, nll, _ = _ChunkedLoss.apply(rows, weight, bias, wanted, counts, smoothing, 0.0, torch.is_grad_enabled())
    return loss, nll, (targets != pad).sum()


def r_drop_loss(
    hidden: Float[Tensor, "n2 t d"],
    weight: Float[Tensor, "v d"],
    targets: Int[Tensor, "n t"],
    *,
    pad: int,
    alpha: float,
    smoothing: float = 0.0,
    bias: Float[Tensor, " v"] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return R-Drop's loss, the plain loss and the divergence, summed over all real target tokens; then their number.

    The model has computed the batch twice: rows 0 to n - 1 of hidden and rows n to 2n - 1 differ only in dropout. The
    loss is half of Liang et al. 2021, eq. 4, ½ (CE₁ + CE₂) + α/2 · ½ (KL₁₂ + KL₂₁), so that α is the paper's (5 for
    translation) and α = 0 gives the mean loss of the two passes. Both cross-entropies are smoothed as in
    `cross_entropy`; the plain loss is the mean of both passes, the divergence ½ (KL₁₂ + KL₂₁), all in nats. Gradients
    flow through the first sum.
    """
    rows, wanted, counts = _real_rows(hidden.unflatten(0, (2, -1)), targets, pad)
    with torch.autocast(hidden.device.type, enabled=False):
        loss, nll, divergence = _ChunkedLoss.apply(
            rows, weight, bias, wanted, counts, smoothing, alpha, torch.is_grad_enabled()
        )
    return loss, nll, divergence, (targets != pad).sum()
