"""Configurations of small models, as vLLM reads them from a folder. Imported on the machine."""

import json
import tempfile
from pathlib import Path
from typing import Any

from vllm.config import CacheConfig, ModelConfig, VllmConfig

from simulation.hf_configs import QWEN3


def model_config(hf_config: dict[str, Any] = QWEN3, **arguments: Any) -> ModelConfig:
    """A ModelConfig of a folder that holds nothing but `hf_config`."""
    folder = tempfile.mkdtemp(dir=".")
    Path(folder, "config.json").write_text(json.dumps(hf_config))
    arguments = {"max_model_len": 4096, "dtype": "bfloat16", **arguments}
    return ModelConfig(model=folder, tokenizer=folder, skip_tokenizer_init=True, **arguments)


def vllm_config(
    hf_config: dict[str, Any] = QWEN3,
    model: dict[str, Any] | None = None,
    cache: dict[str, Any] | None = None,
    **configs: Any,
) -> VllmConfig:
    """A VllmConfig of a small model; keyword arguments as VllmConfig's."""
    return VllmConfig(
        model_config=model_config(hf_config, **(model or {})),
        cache_config=CacheConfig(block_size=16, **(cache or {})),
        **configs,
    )
