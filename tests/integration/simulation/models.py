"""Configurations of small models, as vLLM reads them from a folder. Imported on the machine."""

import json
import tempfile
from pathlib import Path
from typing import Any

from vllm.config import CacheConfig, ModelConfig, VllmConfig

QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}


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
