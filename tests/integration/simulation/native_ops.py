"""vLLM's native ops on a machine that has not built them.

The schemas are read from the tree's own bindings, as a ROCm build compiles them. Ops that a test
runs have a plain implementation for CPU tensors here; the others can be named and matched, not run.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from simulation import native_mla, native_moe

_LIBRARIES: list[torch.library.Library] = []  # an op lives as long as its Library


def define_native_ops(tree: Path) -> None:
    """Register every op of `csrc`'s two bindings, and implement some on the CPU.

    Raises:
        RuntimeError: A schema that torch does not parse.
        ValueError: No schema was found: the bindings are not what this module reads.
    """
    libraries: dict[str, torch.library.Library] = {}
    for bindings in ("csrc/torch_bindings.cpp", "csrc/moe/torch_bindings.cpp"):
        source = _as_compiled_for_rocm((tree / bindings).read_text())
        for namespace, schema in _schemas(source):
            if namespace not in libraries:
                libraries[namespace] = torch.library.Library(namespace, "FRAGMENT")
            libraries[namespace].define(schema)
    for namespace, functions in _IMPLEMENTED.items():
        if namespace not in libraries:
            raise ValueError(f"no op of {namespace} found in the bindings of {tree}/csrc")
        for function in functions:
            libraries[namespace].impl(function.__name__, function, "CPU")
    _LIBRARIES.extend(libraries.values())


def _as_compiled_for_rocm(source: str) -> str:
    """The source without comments and without what a ROCm build's preprocessor removes."""
    kept, skipping = [], []
    for line in source.replace("\\\n", "").splitlines():
        directive = line.split("//")[0].split()
        match directive[:2]:
            case ["#ifdef", name]:
                skipping.append(name != "USE_ROCM")
            case ["#ifndef", name]:
                skipping.append(name == "USE_ROCM")
            case ["#else", *_]:
                skipping[-1] = not skipping[-1]
            case ["#endif", *_]:
                skipping.pop()
            case _:
                if not any(skipping):
                    kept.append(re.sub(r"^\s*//.*", "", line))
    return "\n".join(kept)


def _schemas(source: str) -> Iterator[tuple[str, str]]:
    """(namespace, schema) of every op defined in a library fragment."""
    string = r'"((?:[^"\\]|\\.)*)"'
    for block in re.finditer(
        r"^STABLE_TORCH_LIBRARY_FRAGMENT\((\w+), (\w+)\) \{$(.*?)^\}", source, re.S | re.M
    ):
        namespace, library, body = block.groups()
        for definition in re.finditer(rf"{library}\.def\(\s*((?:{string}\s*)+)", body):
            yield namespace, "".join(re.findall(string, definition.group(1)))


def rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor | None,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox: bool,
    rope_dim_offset: int = 0,
    inverse: bool = False,
) -> None:
    """Rotate query and key in place, in fp32, rounded once."""
    rotary_dim = cos_sin_cache.shape[1]
    cos, sin = cos_sin_cache[positions].float().unsqueeze(1).chunk(2, dim=-1)
    if inverse:
        sin = -sin
    for x in (query, key):
        if x is None:
            continue
        heads = x.view(x.shape[0], -1, head_size)
        turned = heads[..., rope_dim_offset : rope_dim_offset + rotary_dim]
        if is_neox:
            first, second = turned.chunk(2, dim=-1)
        else:
            first, second = turned[..., 0::2], turned[..., 1::2]
        a, b = first.float(), second.float()
        turned_first, turned_second = a * cos - b * sin, b * cos + a * sin
        first.copy_(turned_first)
        second.copy_(turned_second)


def rms_norm(result: Tensor, input: Tensor, weight: Tensor | None, epsilon: float) -> None:
    """Norm over the last dimension, with vLLM's native rounding."""
    x = input.float()
    x = x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + epsilon)
    if weight is not None:
        x = x.to(weight.dtype) * weight
    result.copy_(x)


def fused_add_rms_norm(
    input: Tensor, residual: Tensor, weight: Tensor | None, epsilon: float
) -> None:
    """Add input to residual, and put the normed sum into input."""
    residual.copy_(input + residual)
    rms_norm(input, residual, weight, epsilon)


def static_scaled_fp8_quant(
    result: Tensor, input: Tensor, scale: Tensor, group_shape: list[int] | None = None
) -> None:
    """Write `input / scale` to a result of an fp8 type, within its range.

    One scale for all, or one for each `group_shape[1]` columns.
    """
    if scale.numel() > 1:
        if group_shape is None or group_shape[1] * scale.numel() != input.shape[-1]:
            raise ValueError(f"{scale.numel()} scales for groups {group_shape} of {input.shape}")
        scale = scale.flatten().repeat_interleave(group_shape[1])
    most = torch.finfo(result.dtype).max
    result.copy_((input.float() / scale).clamp(-most, most))


def silu_and_mul(result: Tensor, input: Tensor) -> None:
    """SiLU of the first half times the second half."""
    gate, up = input.chunk(2, dim=-1)
    result.copy_(torch.nn.functional.silu(gate) * up)


def gelu_tanh_and_mul(result: Tensor, input: Tensor) -> None:
    """GELU, by its tanh approximation, of the first half times the second half."""
    gate, up = input.chunk(2, dim=-1)
    result.copy_(torch.nn.functional.gelu(gate, approximate="tanh") * up)


def relu_squared(result: Tensor, input: Tensor) -> None:
    """The square of what is positive."""
    result.copy_(torch.relu(input).square())


_IMPLEMENTED: dict[str, list[Callable[..., None]]] = {
    "_C": [
        rotary_embedding,
        rms_norm,
        fused_add_rms_norm,
        static_scaled_fp8_quant,
        silu_and_mul,
        gelu_tanh_and_mul,
        relu_squared,
    ],
    "_C_cache_ops": [
        native_mla.concat_and_cache_mla,
        native_mla.gather_and_maybe_dequant_cache,
    ],
    "_moe_C": [
        native_moe.topk_softmax,
        native_moe.topk_sigmoid,
        native_moe.moe_sum,
        native_moe.moe_align_block_size,
    ],
}
