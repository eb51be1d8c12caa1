"""R-Drop: two dropouts' predictions of the same tokens, learnt from together and drawn towards each other.

Like `loss`, it goes from hidden states to gradients chunk by chunk and never holds a batch's logits.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from seq2seq.training.loss import LEAVES_OUT_PADDING, chunk_of, scaled


class _ChunkedRDrop(torch.autograd.Function):
    """Computes gradients along with the loss, in closed form.

    With p and q the two passes' probabilities and J = KL(p‖q) + KL(q‖p) = Σ (p - q)(log p - log q):
    ∂J/∂logits of p = p · (log p - log q - KL(p‖q)) + p - q, and likewise with p and q exchanged.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        counts: Tensor | None,
        smoothing: float,
        alpha: float,
        with_gradients: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        exact = torch.promote_types(hidden.dtype, torch.float32)
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros(weight.shape, dtype=exact, device=weight.device)
        weight = weight.to(hidden.dtype)
        loss, nll, divergence = (hidden.new_zeros((), dtype=exact) for _ in range(3))
        size = chunk_of(hidden.device) // 2  # target tokens whose logits are alive at once, of both passes
        for start in range(0, len(targets), size):
            rows, wanted = hidden[:, start : start + size], targets[start : start + size, None].expand(2, -1, 1)
            share = 1 if counts is None else counts[start : start + size, None]  # 1 for a real token, 0 for padding
            log_probs = (rows @ weight.T).to(exact).log_softmax(-1)  # (2, rows, v)
            probs = log_probs.exp()
            other = log_probs.flip(0).neg_().add_(log_probs)  # log p - log q, log q - log p
            kl = (probs * other).sum(-1, keepdim=True)  # KL(p‖q), KL(q‖p)
            of_wanted = (log_probs.gather(-1, wanted) * share).sum()
            of_all = (log_probs.mean(-1, keepdim=True) * share).sum()
            nll -= of_wanted / 2
            divergence += (kl * share).sum() / 2
            loss -= (1 - smoothing) * of_wanted / 2 + smoothing * of_all / 2
            if not with_gradients:
                continue
            # half of: softmax - smoothed target + α/2 · ∂J/∂logits
            grad = other.sub_(kl).mul_(probs).add_(probs).sub_(probs.flip(0)).mul_(alpha / 2)
            grad.add_(probs).sub_(smoothing / weight.shape[0])
            grad.scatter_add_(-1, wanted, grad.new_full((1, 1, 1), smoothing - 1).expand_as(wanted))
            grad = grad.mul_(share / 2).to(hidden.dtype)
            grad_hidden[:, start : start + size] = grad @ weight
            grad_weight += grad.flatten(0, 1).T @ rows.flatten(0, 1)
        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.mark_non_differentiable(nll, divergence)
        return loss + alpha / 2 * divergence, nll, divergence

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] (decorated)
        grad_loss = grad_outputs[0]
        grad_hidden, grad_weight = ctx.saved_tensors
        return scaled(grad_hidden, grad_loss), grad_weight * grad_loss, None, None, None, None, None


def r_drop_loss(
    hidden: Float[Tensor, "n2 t d"],
    weight: Float[Tensor, "v d"],
    targets: Int[Tensor, "n t"],
    *,
    pad: int,
    alpha: float,
    smoothing: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sums over all real target tokens of R-Drop's loss, of the plain one and of the divergence; and their number.

    The batch has passed twice: rows n… of hidden are the rows …n under another dropout. The loss is half of Liang et
    al. 2021, eq. 4, ½ (CE₁ + CE₂) + α/2 · ½ (KL₁₂ + KL₂₁), so that α is theirs (5 for translation) and the loss at
    α = 0 that of a single pass. Both cross-entropies are smoothed as in `cross_entropy`; the plain loss is the mean
    of both passes' and the divergence ½ (KL₁₂ + KL₂₁), all in nats. Gradients flow through the first.
    """
    is_real = targets != pad
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    with torch.autocast(device, enabled=False):
        passes, wanted, counts = hidden.unflatten(0, (2, -1)).flatten(1, 2), targets.flatten(), None
        if device in LEAVES_OUT_PADDING:
            real = is_real.flatten()
            passes, wanted = passes[:, real], wanted[real]
        else:
            counts = is_real.flatten().float()
        loss, nll, divergence = _ChunkedRDrop.apply(
            passes.to(dtype), weight, wanted, counts, smoothing, alpha, torch.is_grad_enabled()
        )
    return loss, nll, divergence, is_real.sum()
