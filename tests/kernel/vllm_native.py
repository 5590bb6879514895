"""vLLM's own modules on a case of a family, in plain PyTorch (forward_native).

Runs in a process of its own: vLLM chooses a platform when it is first imported,
and other tests choose another one than the CPU's that is set here. Everything
goes in and out as CPU tensors.
"""

import dataclasses
import functools
import pathlib
import sys
import types
from typing import Any

import torch

from tests.kernel import cases
from tests.kernel.cases import Options
from tests.kernel.families import BY_NAME, Family
from tests.kernel.rope_tables import (
    LinearRope,
    Llama3Rope,
    LongRope,
    ProportionalRope,
    Rope,
    YarnRope,
)

CPU = torch.device("cpu")


@dataclasses.dataclass(frozen=True)
class Native:
    """What vLLM's modules make of a case: q [T, Hq, D], k and v [T, Hkv, D]
    (None where the family has none), and its cos/sin table (None without RoPE),
    cut to the rows of the family's own."""

    q: torch.Tensor
    k: torch.Tensor | None
    v: torch.Tensor | None
    table: torch.Tensor | None


@functools.cache
def import_vllm(source: pathlib.Path) -> None:
    """Makes vLLM importable from a source tree, on the CPU platform."""
    sys.path.insert(0, str(source))
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    vllm.platforms._current_platform = CpuPlatform()
    import vllm.model_executor.layers.layernorm
    import vllm.model_executor.layers.rotary_embedding


def run(
    source: pathlib.Path, family_name: str, tokens: int, dtype: torch.dtype, seed: int
) -> Native:
    """The modules' results for `cases.build(family, tokens, dtype, seed=seed)`."""
    import_vllm(source)
    from vllm.config import VllmConfig, set_current_vllm_config

    family = BY_NAME[family_name]
    a = cases.build(family, tokens, dtype, Options(), seed, device=CPU).arguments
    with set_current_vllm_config(VllmConfig()), torch.inference_mode():
        q = _norm(a.q, a.q_weight, family)
        k = None if a.k is None else _norm(a.k, a.k_weight, family)
        v = a.v
        if v is not None and family.v_norm:
            v = _rms_norm(v, None, family.eps)
        table = None
        if family.rope is not None:
            module, table = _rotary_module(family, dtype)
            flat_k = None if k is None else k.flatten(1)
            q, flat_k = module(a.positions, q.flatten(1), flat_k)
            q = q.unflatten(1, (-1, family.head_dim))
            if flat_k is not None:
                k = flat_k.unflatten(1, (-1, family.head_dim))
        if family.q_scale_beta:
            q = _mistral_scale(q, a.positions, family)
    return Native(
        q.clone(),
        None if k is None else k.clone(),
        None if v is None else v.clone(),
        None if table is None else table.clone(),
    )


def _norm(x: torch.Tensor, weight: torch.Tensor | None, family: Family) -> torch.Tensor:
    if weight is None:
        return x.contiguous()
    if family.norm == "rms":
        return _rms_norm(x, weight, family.eps)
    from vllm.model_executor.layers.layernorm import GemmaRMSNorm

    module = GemmaRMSNorm(family.head_dim, eps=family.eps).to(weight.dtype)
    module.weight.data.copy_(weight)
    return module.forward_native(x.contiguous())


def _rms_norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    from vllm.model_executor.layers.layernorm import RMSNorm

    module = RMSNorm(x.shape[-1], eps=eps, has_weight=weight is not None, dtype=x.dtype)
    if weight is not None:
        module.weight.data.copy_(weight)
    return module.forward_native(x.contiguous())


def _mistral_scale(q: torch.Tensor, positions: torch.Tensor, family: Family) -> torch.Tensor:
    from vllm.model_executor.models.mistral import MistralAttention

    attention = types.SimpleNamespace(
        llama_4_scaling_beta=family.q_scale_beta,
        llama_4_scaling_original_max_position_embeddings=family.q_scale_orig_max,
    )
    scale = MistralAttention._get_llama_4_attn_scale(attention, positions)
    return (q.flatten(1) * scale).to(q.dtype).unflatten(1, (-1, family.head_dim))


def _rotary_module(family: Family, dtype: torch.dtype) -> tuple[Any, torch.Tensor]:
    """The module's plain forward, and its table in the activations' dtype."""
    from vllm.model_executor.layers import rotary_embedding
    from vllm.model_executor.layers.rotary_embedding import phi3_long_rope_scaled_rope

    rope = family.rope
    assert rope is not None
    if isinstance(rope, LongRope):
        # The module asks the configuration which of its tables serves the model.
        longest = rope.original_max_position + (1 if family.pos_offset else 0)
        config = types.SimpleNamespace(model_config=types.SimpleNamespace(max_model_len=longest))
        phi3_long_rope_scaled_rope.get_current_vllm_config = lambda: config
    module = rotary_embedding.get_rope(
        family.head_dim,
        max_position=_max_position(rope),
        is_neox_style=family.is_neox,
        rope_parameters=_rope_parameters(family, rope),
        dtype=dtype,
    )
    if isinstance(rope, LongRope):
        return module.forward, module.long_short_cos_sin_cache[: rope.rows]
    return module.forward_native, module.cos_sin_cache[: rope.rows]


def _max_position(rope: Rope) -> int:
    return rope.max_position if isinstance(rope, LongRope) else rope.rows


def _rope_parameters(family: Family, rope: Rope) -> dict[str, Any]:
    """The family's RoPE in the words of a model's configuration."""
    parameters: dict[str, Any] = {
        "rope_type": "default",
        "rope_theta": rope.base,
        "rope_dim": rope.rotary_dim,
    }
    if family.mrope_section is not None:
        section = list(family.mrope_section)
        parameters |= {"mrope_section": section, "mrope_interleaved": family.mrope_interleaved}
    elif family.position_rows == 3:
        # Equal rows: whatever the sections.
        parameters |= {"mrope_section": [24, 20, 20], "mrope_interleaved": True}
    if isinstance(rope, LinearRope):
        parameters |= {"rope_type": "linear", "factor": rope.factor}
    elif isinstance(rope, Llama3Rope):
        parameters |= {
            "rope_type": "llama3",
            "factor": rope.factor,
            "low_freq_factor": rope.low_freq_factor,
            "high_freq_factor": rope.high_freq_factor,
            "original_max_position_embeddings": rope.original_max_position,
        }
    elif isinstance(rope, YarnRope):
        parameters |= {
            "rope_type": "yarn",
            "factor": rope.factor,
            "original_max_position_embeddings": rope.original_max_position,
            "beta_fast": rope.beta_fast,
            "beta_slow": rope.beta_slow,
        }
        if rope.mscales_cancel:
            parameters |= {"mscale": 1.0, "mscale_all_dim": 1.0}
    elif isinstance(rope, LongRope):
        parameters |= {
            "rope_type": "longrope",
            "short_factor": list(rope.short_factor),
            "long_factor": list(rope.long_factor),
            "original_max_position_embeddings": rope.original_max_position,
        }
    elif isinstance(rope, ProportionalRope):
        parameters |= {
            "rope_type": "proportional",
            "rope_dim": 2 * rope.rotating_pairs,
        }
    return parameters
