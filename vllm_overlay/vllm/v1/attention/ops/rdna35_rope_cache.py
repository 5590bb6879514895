# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Python side of the native op `_rocm_C::rdna35_rope_cache`.

One launch does what a decode step does to Q, K and V between the qkv projection
and attention: RMSNorm of Q's and K's heads, RoPE, a weightless RMSNorm of V, and
the write of K and V into the paged KV cache.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import cache

# series only: begin
from pathlib import Path

# series only: end
import torch

_OP = "_rocm_C::rdna35_rope_cache"


def _is_registered() -> bool:
    return hasattr(torch.ops._rocm_C, "rdna35_rope_cache")


def _fake(*args, **kwargs) -> None:
    """The op returns nothing: every result is in an argument that it mutates."""


# series only: begin
_LIBRARY = Path(__file__).parents[3] / "librdna35.so"


def _load_library() -> str | None:
    """Load the op from the library beside the `vllm` package.

    Builds that are no full ROCm build carry it there. Returns why it is not
    there, or None.
    """
    if not _LIBRARY.is_file():
        return f"vllm._rocm_C does not have it and there is no {_LIBRARY}"
    try:
        torch.ops.load_library(_LIBRARY)
    except OSError as e:
        return f"{_LIBRARY} does not load: {e}"
    return None


# series only: end
@cache
def unavailable_reason() -> str | None:
    """Find the op, once per process.

    Returns:
        None if the op can be called, otherwise one line that says why not.

    """
    # A ROCm build for gfx115x registers it when its extension is imported.
    with suppress(ImportError):
        import vllm._rocm_C  # noqa: F401
    # series only: begin
    if not _is_registered() and (reason := _load_library()):
        return reason
    # series only: end
    if not _is_registered():
        return "this build was not made for gfx115x"
    torch.library.register_fake(_OP, _fake)
    return None


def available() -> bool:
    """Whether the op is in this build. `unavailable_reason` says why not."""
    return unavailable_reason() is None


def supports_head_size(head_size: int) -> bool:
    """Whether the op is in this build and has kernels for heads of this size."""
    return available() and torch.ops._rocm_C.rdna35_rope_cache_has_head_size(head_size)


def supports_dtype(dtype: torch.dtype) -> bool:
    """Whether activations and KV cache may have this dtype."""
    return dtype in (torch.float16, torch.bfloat16)


def load_kernels(device: torch.device) -> None:
    """Load the code object for a device ahead of the first call.

    Call it outside graph capture: loading a module is not allowed inside one.

    Args:
        device: The device, with its index. There is nothing to load for the CPU.

    Raises:
        RuntimeError: The HIP runtime is missing, the device's architecture is
            not built, or the code object does not load.

    """
    torch.ops._rocm_C.rdna35_rope_cache_load(torch.empty(0, device=device))


def rdna35_rope_cache(
    positions: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor | None,
    v: torch.Tensor | None,
    cos_sin_cache: torch.Tensor | None,
    *,
    is_neox: bool = True,
    mrope_section: Sequence[int] | None = None,
    mrope_interleaved: bool = False,
    q_weight: torch.Tensor | None = None,
    k_weight: torch.Tensor | None = None,
    weight_offset: float = 0.0,
    v_norm: bool = False,
    eps: float = 0.0,
    pos_offset: int = 0,
    q_scale_beta: float = 0.0,
    q_scale_orig_max: int = 1,
    kv_cache: torch.Tensor | None = None,
    slot_mapping: torch.Tensor | None = None,
    q_out: torch.Tensor | None = None,
    k_out: torch.Tensor | None = None,
    v_out: torch.Tensor | None = None,
) -> None:
    """Norm, rotate and scale Q, norm and rotate K, and write K and V to the cache.

    Args:
        positions: int64 `[T]`; `[3, T]` with `mrope_section`.
        q: `[T, Hq, D]`, fp16 or bf16; rotated in place unless `q_out` is given.
        k: `[T, Hkv, D]` of q's dtype; rotated in place unless `k_out` is given.
        v: `[T, Hkv, D]` of q's dtype, only read.
        cos_sin_cache: `[max_pos, rot]` of q's dtype, the cosines then the sines;
            None: no rotation.
        is_neox: Pairs are (i, i + rot / 2); if not, (2i, 2i + 1), as in GPT-J.
        mrope_section: How many of the rot / 2 pairs turn by each row of positions
            (time, height, width).
        mrope_interleaved: The rows take turns, instead of following each other.
        q_weight: RMSNorm weight `[D]` of q's dtype or fp32; None: no norm.
        k_weight: As `q_weight`, for K.
        weight_offset: Added to both weights, in fp32 (1.0 for GemmaRMSNorm).
        v_norm: Norm V, without a weight, before it is written.
        eps: Epsilon of every norm.
        pos_offset: Added to a position to find its row of `cos_sin_cache`.
        q_scale_beta: Beta of Llama 4's scaling of Q; 0: off.
        q_scale_orig_max: Context length that the scaling starts from, in tokens.
        kv_cache: `[blocks, Hkv, block_size, 2 * D]` of q's dtype, K then V in the
            last dimension, any other strides; None: nothing is written.
        slot_mapping: int64 `[S]`, S <= T: slot of each token, negative for a token
            that is not written. Required with `kv_cache`.
        q_out: `[T, Hq, D]`, receives Q; `q` then stays as it is.
        k_out: `[T, Hkv, D]`, receives K; `k` then stays as it is.
        v_out: `[T, Hkv, D]`, receives V as it is written to the cache.

    Raises:
        RuntimeError: An argument is not what it must be (nothing is written then),
            or the launch failed. The message names the argument.

    """
    torch.ops._rocm_C.rdna35_rope_cache(
        positions,
        q,
        k,
        v,
        cos_sin_cache,
        q_weight,
        k_weight,
        v_norm,
        eps,
        pos_offset,
        q_scale_beta,
        q_scale_orig_max,
        kv_cache,
        slot_mapping,
        q_out,
        k_out,
        v_out,
        weight_offset,
        is_neox,
        mrope_section,
        mrope_interleaved,
    )
