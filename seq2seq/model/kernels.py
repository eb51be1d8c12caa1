"""Which kernel computes attention, by device and precision, as measured (docs/performance.md). Knows no layer."""

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

UNFUSED_MAX_KEYS = 256  # the weights of more keys no longer fit into the processor's cache
SOFTMAX = "1782124a05f3f723"  # of the code of `attention_weights` that the fused kernel computes
Weights = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # of queries, keys and a mask


def uses_fused_kernel(queries: Tensor, keys: Tensor, weights: Weights) -> bool:
    """Return whether PyTorch's fused kernel is the fastest way to attend with these queries (…, c) to keys (…, s, c).

    It is, except on the CPU with gradients in bfloat16 and few keys. It is never used instead of changed `weights`.
    """
    is_slow = queries.device.type == "cpu" and queries.dtype == torch.bfloat16 and queries.requires_grad
    return (not is_slow or keys.shape[-2] > UNFUSED_MAX_KEYS) and is_fused_kernels(weights)


@cache
def is_fused_kernels(weights: Weights) -> bool:
    """Return whether these weights are the fused kernel's: softmax, by the unchanged code of attention.py.

    The code counts without docstring, comments and white space. Any other function, also one that gives the same
    weights, is computed as it is.
    """
    try:
        function: ast.AST = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(weights)))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):  # a function without source, or a part of a line
        return False
    if not isinstance(function, ast.FunctionDef) or function.decorator_list:
        return False
    statements = function.body[1:] if ast.get_docstring(function) else function.body
    code = "".join(map(ast.unparse, statements))
    return hashlib.blake2b("".join(code.split()).encode(), digest_size=8).hexdigest() == SOFTMAX
