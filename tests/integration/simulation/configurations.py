"""What vLLM makes of a user's settings, as plain text that two machines can compare.

Imported on the machine.
"""

import copy
import dataclasses
from typing import Any

from vllm.config import (
    AttentionConfig,
    CompilationConfig,
    KVTransferConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.config.vllm import OptimizationLevel

from simulation.hf_configs import QWEN3
from simulation.models import vllm_config

# What differs from one process, run or model folder to the next.
_LEFT_OUT = ("instance_id", "engine_id", "model_config", "quant_config", "static_forward_context")


def configure(
    hf_config: dict[str, Any] = QWEN3,
    level: int = 2,
    backend: str | None = None,
    dtype: str = "bfloat16",
    cache_dtype: str = "auto",
    passes: dict[str, Any] | None = None,
    attention: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    scheduler: dict[str, Any] | None = None,
    backend_of_compilation: str = "",
    kv_connector: str | None = None,
    **compilation: Any,
) -> VllmConfig:
    """The configuration that vLLM resolves.

    Args:
        hf_config: The model's.
        level: Optimization level, 0 to 3.
        backend: Attention backend that the user selects; None: auto.
        dtype: Of the activations.
        cache_dtype: Of the KV cache.
        passes: PassConfig's settings.
        attention: AttentionConfig's other settings.
        model: ModelConfig's other settings.
        scheduler: SchedulerConfig's settings.
        backend_of_compilation: CompilationConfig's backend.
        kv_connector: Name of a KV connector that takes and gives.
        compilation: CompilationConfig's other settings.

    Raises:
        ValueError: vLLM refuses the settings.
    """
    # Mutable settings are the configuration's from here on.
    compilation = copy.deepcopy(compilation)
    transfer = None
    configs = {}
    if scheduler is not None:
        configs["scheduler_config"] = SchedulerConfig.default_factory(**scheduler)
    if kv_connector is not None:
        transfer = KVTransferConfig(kv_connector=kv_connector, kv_role="kv_both")
    return vllm_config(
        hf_config,
        model={"dtype": dtype, **(model or {})},
        cache={"cache_dtype": cache_dtype},
        attention_config=AttentionConfig(backend=backend, **(attention or {})),
        compilation_config=CompilationConfig(
            backend=backend_of_compilation, pass_config=dict(passes or {}), **compilation
        ),
        optimization_level=OptimizationLevel(level),
        kv_transfer_config=transfer,
        **configs,
    )


def resolved(**asked: Any) -> dict[str, str]:
    """`settings` of `configure(**asked)`; only "refused", with the reason, where vLLM refuses."""
    try:
        return settings(configure(**asked))
    except ValueError as refusal:
        return {"refused": str(refusal)}


def settings(config: VllmConfig) -> dict[str, str]:
    """Every setting as text, by its path: `compilation_config.pass_config.fuse_rope_kvcache`."""
    found: dict[str, str] = {}

    def read(value: Any, path: str) -> None:
        if dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                if field.name not in _LEFT_OUT:
                    read(getattr(value, field.name), f"{path}.{field.name}" if path else field.name)
        else:
            found[path] = str(value)

    read(config, "")
    return found
