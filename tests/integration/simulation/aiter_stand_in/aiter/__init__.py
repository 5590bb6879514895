"""Stand-in for AITER: it can be found, and imported only on GPUs of AITER's own list.

Of its kernels there are the few, in plain PyTorch, that vLLM's graphs call before attention. The
fused ones, and attention's, are missing or cannot be called.
"""

import os

import torch
from torch import Tensor

_SUPPORTED = ("gfx942", "gfx950")
_ARCH = os.environ["SIMULATED_ARCH"]

if _ARCH not in _SUPPORTED:
    raise RuntimeError(f"aiter: {_ARCH} is none of {', '.join(_SUPPORTED)}")


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Norm of `[rows, size]` over the last dimension, in fp32, rounded before the weight."""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(dim=-1, keepdim=True) + epsilon)
    return y.to(weight.dtype) * weight
