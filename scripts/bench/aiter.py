"""AITER's fused RoPE-and-cache kernel, from the files of its wheel.

The kernel is Triton alone. AITER's package refuses to be imported without a GPU of AMD's, so that
its folders stand in as empty packages and the module's file is all that runs of it.
"""

import importlib
import sys
import types
from pathlib import Path

import torch

from scripts.bench.inputs import Inputs
from scripts.bench.shapes import Shape
from scripts.bench.variants import Variant


def serves(shape: Shape, tokens: int = 1) -> bool:
    """Whether the kernel does the shape's work: no norm, RoPE of the whole head by one
    position, D a power of 2, a bf16 cache."""
    power_of_two = shape.head_dim & (shape.head_dim - 1) == 0
    return shape.is_plain and not shape.norm and shape.rot == shape.head_dim and power_of_two


def aiter(folder: Path) -> Variant:
    """The variant, with AITER's files from a folder (scripts.bench.sources)."""
    for package in ("", ".ops", ".ops.triton", ".ops.triton._triton_kernels", ".ops.triton.utils"):
        module = types.ModuleType(f"aiter{package}")
        module.__path__ = [str(folder.joinpath(*package.split(".")[1:]))]
        sys.modules[module.__name__] = module
    fused = importlib.import_module("aiter.ops.triton.fused_kv_cache")

    def run(i: Inputs) -> None:
        k_cache, v_cache = i.kv_cache.transpose(1, 2).split(i.shape.head_dim, dim=-1)
        cos, sin = i.cos_sin_cache.chunk(2, dim=-1)
        fused.fused_qk_rope_reshape_and_cache(
            i.q, i.k, i.v, k_cache, v_cache, i.slot_mapping, i.positions, cos, sin, None, None,
            is_neox=i.shape.is_neox, flash_layout=True, apply_scale=False, q_out=i.q_out,
            k_out=i.k_out, output_zeros=False,
        )  # fmt: skip

    def outputs(i: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
        run(i)
        return i.q_out, i.k_out

    return Variant("aiter", run, outputs, allowed=4, serves=serves)
