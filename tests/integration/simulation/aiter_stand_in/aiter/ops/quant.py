"""Part of the stand-in for AITER: quantization."""

import torch
from torch import Tensor


def static_per_tensor_quant(out: Tensor, x: Tensor, scale: Tensor) -> None:
    """Write `x / scale` to `out`, of an fp8 type, within that type's range."""
    most = torch.finfo(out.dtype).max
    out.copy_((x.float() / scale).clamp(-most, most))


def dynamic_per_tensor_quant(out: Tensor, x: Tensor, scale: Tensor) -> None:
    """The same with the scale that takes the largest value to the type's; writes it too."""
    scale.copy_(x.float().abs().max() / torch.finfo(out.dtype).max)
    static_per_tensor_quant(out, x, scale)
