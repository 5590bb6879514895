# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""When gfx1151 fuses RoPE (and QK norm) with the KV cache write.

ROCM_ATTN's class for gfx1151 does both in one native op. The two flags of
PassConfig that let the compiler put it into the graph are decided here, with the
two settings without which neither can match: RoPE as a custom op, and the KV
cache update inside the compiled graph. A model that cannot be fused is left
with the configuration that it has without any of this.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import vllm.envs as envs
from vllm.logger import init_logger
from vllm.v1.attention.ops import rdna35_rope_cache as op

if TYPE_CHECKING:
    from vllm.config import CompilationConfig, ModelConfig, VllmConfig

logger = init_logger(__name__)

FUSIONS = ("fuse_rope_kvcache", "fuse_qk_norm_rope_kvcache")
# Batches up to which the op was timed, and was faster than what it replaces.
MAX_TOKENS = 8192
_KV_CACHE_UPDATE = "vllm::unified_kv_cache_update"
# Set on a PassConfig once its flags are decided. A draft model's configuration
# shares the object and is resolved in its turn: without the mark, the flags that
# were set by default would then pass for the user's.
_DECIDED = "_gfx1151_fusions_decided"


def has_gfx1151_fusions() -> bool:
    """Whether this is gfx1151, with ROCM_ATTN the class that can fuse."""
    from vllm.platforms import current_platform

    if not current_platform.is_rocm():
        return False
    from vllm.platforms.rocm import on_gfx1151

    return on_gfx1151() and _find_absence_reason() is None


def decide_fusions(vllm_config: "VllmConfig") -> None:
    """Set the flags that are still unset, and refuse those that cannot be honoured.

    From -O2 on, a flag that the user left unset becomes True if the model can be
    fused; what the user set is kept. With a flag on, batches of up to MAX_TOKENS
    are fused unless the user says how many. Called before the optimization level's
    defaults, which turn what is left unset off. Without a model nothing is done.

    Args:
        vllm_config: Its `compilation_config` is changed in place.

    Raises:
        ValueError: A flag is True and cannot be honoured; names the reason.

    """
    # vllm.config imports the platform, which imports this.
    from vllm.config.vllm import OptimizationLevel

    compilation_config = vllm_config.compilation_config
    passes = compilation_config.pass_config
    if vllm_config.model_config is None or getattr(passes, _DECIDED, False):
        return
    wanted = [name for name in FUSIONS if getattr(passes, name)]
    by_default = []
    if vllm_config.optimization_level >= OptimizationLevel.O2:
        by_default = [name for name in FUSIONS if getattr(passes, name) is None]

    if wanted or by_default:
        reason = _find_unfusable_reason(vllm_config)
        if reason is None:
            for name in by_default:
                setattr(passes, name, True)
            if "+rotary_embedding" not in compilation_config.custom_ops:
                compilation_config.custom_ops.append("+rotary_embedding")
            if passes.rope_kvcache_fusion_max_token_num is None:
                passes.rope_kvcache_fusion_max_token_num = MAX_TOKENS
        elif wanted:
            raise ValueError(
                f"pass_config.{wanted[0]}=True cannot be honoured on gfx1151: "
                f"{reason}. Leave the flag unset, or change that setting."
            )
        else:
            logger.info_once("RoPE is not fused with the KV cache update: %s.", reason)
    setattr(passes, _DECIDED, True)


def keep_kv_cache_update_in_graph(vllm_config: "VllmConfig") -> None:
    """Choose splitting ops that leave a fusion its KV cache update.

    By default the compiled graph is also split at the KV cache update, where no
    pass sees it beside RoPE, and `set_splitting_ops_for_v1` takes the flags back.
    Called when the flags are final and before that. Splitting ops of the user's
    are kept, and what `fuse_attn_quant` or Inductor's own partition settles. Where
    `decide_fusions` has not decided, nothing is done.

    Args:
        vllm_config: Its `compilation_config` is changed in place.

    """
    compilation_config = vllm_config.compilation_config
    if not getattr(getattr(compilation_config, "pass_config", None), _DECIDED, False):
        return
    passes = compilation_config.pass_config
    if (
        not any(getattr(passes, name) for name in FUSIONS)
        or compilation_config.splitting_ops is not None
        or compilation_config.use_inductor_graph_partition
        or passes.fuse_attn_quant
    ):
        return
    compilation_config.splitting_ops = [
        *compilation_config._attention_ops,
        "vllm::unified_mla_kv_cache_update",
    ]


def _find_unfusable_reason(vllm_config: "VllmConfig") -> str | None:
    """Why no layer of the model can be fused; None if one can."""
    return (
        _find_absence_reason()
        or _find_compilation_reason(vllm_config)
        or _find_model_reason(vllm_config.model_config)
        or _find_kv_cache_reason(vllm_config)
        or _find_layer_reason(vllm_config)
    )


def _find_absence_reason() -> str | None:
    """Why no model can be fused here."""
    if not envs.VLLM_ROCM_USE_GFX1151_ATTN:
        return "VLLM_ROCM_USE_GFX1151_ATTN=0 turns it off"
    if not op.available():
        return f"this build has no rdna35_rope_cache: {op.unavailable_reason()}"
    return None


def _find_compilation_reason(vllm_config: "VllmConfig") -> str | None:
    """Why the passes would not run, or would not see what they fuse."""
    from vllm.config.compilation import CompilationMode
    from vllm.config.vllm import OptimizationLevel

    compilation_config: CompilationConfig = vllm_config.compilation_config
    mode = compilation_config.mode
    if mode is None and vllm_config.optimization_level == OptimizationLevel.O0:
        mode = CompilationMode.NONE
    if mode not in (None, CompilationMode.VLLM_COMPILE):
        return f"the model is not compiled by vLLM (mode {mode.name})"
    if compilation_config.backend != "inductor":
        return f"the compile backend is {compilation_config.backend}, not inductor"
    if "-rotary_embedding" in compilation_config.custom_ops:
        return "custom_ops has -rotary_embedding"
    splits = compilation_config.splitting_ops or []
    if not compilation_config.use_inductor_graph_partition and any(
        split in (_KV_CACHE_UPDATE, f"{_KV_CACHE_UPDATE}.default") for split in splits
    ):
        return f"splitting_ops has {_KV_CACHE_UPDATE}"
    return None


def _find_model_reason(model_config: "ModelConfig") -> str | None:
    """Why the model has no layer that rotates and writes a plain KV cache."""
    if model_config.attn_type in ("encoder_only", "attention_free"):
        return f"the model is {model_config.attn_type} and writes no KV cache"
    if model_config.use_mla:
        return "the model uses MLA"
    if model_config.using_transformers_backend():
        return "models of the Transformers backend rotate in their own code"
    if not op.supports_dtype(model_config.dtype):
        return f"activations are {model_config.dtype}, not float16 or bfloat16"
    return None


def _find_kv_cache_reason(vllm_config: "VllmConfig") -> str | None:
    """Why the KV cache is not of the activations' dtype."""
    cache_dtype = vllm_config.cache_config.cache_dtype
    # "auto" becomes fp8 where a checkpoint of llm-compressor's says so.
    scheme = getattr(vllm_config.quant_config, "kv_cache_scheme", None)
    if cache_dtype == "auto" and scheme is not None:
        return "the checkpoint quantizes the KV cache"
    # Another plain dtype than the model's has been refused by now.
    if cache_dtype not in ("auto", "float16", "bfloat16"):
        return f"the KV cache is quantized ({cache_dtype})"
    return None


def _find_layer_reason(vllm_config: "VllmConfig") -> str | None:
    """Why no layer has the backend that fuses and heads that its kernel takes.

    The platform's own selector is asked for every kind of layer that the model's
    configuration knows of.
    """
    from vllm.config import set_current_vllm_config
    from vllm.v1.attention.backends.rocm_gfx1151_attn import (
        RocmGfx1151AttentionBackend,
    )
    from vllm.v1.attention.selector import get_attn_backend

    model_config = vllm_config.model_config
    kinds = sorted(set(_layer_kinds(model_config)))
    for head_size, has_window in kinds:
        try:
            with set_current_vllm_config(vllm_config):
                backend = get_attn_backend(
                    head_size,
                    model_config.dtype,
                    vllm_config.cache_config.cache_dtype,
                    use_mm_prefix=model_config.is_mm_prefix_lm,
                    has_sliding_window=has_window,
                )
        except ValueError as refusal:
            # A layer of this kind, if there is one, will fail with the same words.
            return f"no attention backend serves head size {head_size}: {refusal}"
        if not issubclass(backend, RocmGfx1151AttentionBackend):
            window = " with a window" if has_window else ""
            return f"{backend.get_name()} serves head size {head_size}{window}"
    sizes = sorted({head_size for head_size, _ in kinds})
    if not any(op.supports_head_size(size) for size in sizes):
        return f"the kernel is not built for head size {', '.join(map(str, sizes))}"
    return None


def _layer_kinds(model_config: "ModelConfig") -> Iterator[tuple[int, bool]]:
    """Head size, and whether there is a sliding window, of each attention layer.

    Where the configuration has a window and does not say for which layers, a layer
    counts as both.
    """
    arch_config = model_config.model_arch_config
    layer_types = getattr(model_config.hf_text_config, "layer_types", None) or []
    has_window = model_config.get_sliding_window() is not None
    for i in range(max(arch_config.total_num_hidden_layers, 1)):
        head_size = arch_config[i].head_size
        layer_type = layer_types[i] if i < len(layer_types) else ""
        if has_window and "full" not in layer_type:
            yield head_size, True
        if not has_window or "sliding" not in layer_type:
            yield head_size, False
