"""pytest plugin: a simulated ROCm machine with what vLLM's own conftest and tests ask for.

Not all that they find is real: tblib is a stand-in, "cuda" is the CPU where a test makes it the
default device, and of two models on the Hugging Face hub the cache has the configuration alone.
The variables STAGED_TREE and STAGED_OP name vLLM's tree and the op library.
"""

import gc
import json
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from simulation.worker import become_a_rocm_machine

# vLLM's default model, and the one that most tests of configurations name.
_MODELS: dict[str, dict[str, Any]] = {
    "Qwen/Qwen3-0.6B": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    },
    "facebook/opt-125m": {
        "architectures": ["OPTForCausalLM"],
        "model_type": "opt",
        "hidden_size": 768,
        "word_embed_proj_dim": 768,
        "ffn_dim": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "activation_function": "relu",
        "do_layer_norm_before": True,
        "torch_dtype": "float16",
    },
}


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Comes before vLLM's conftest is imported, and with it vLLM."""
    become_a_rocm_machine(Path(os.environ["STAGED_TREE"]), Path(os.environ["STAGED_OP"]))
    _put_models(Path(os.environ["HF_HOME"], "hub"))
    _take_the_cpu_for_cuda()
    # It hands tracebacks from process to process.
    tblib: Any = ModuleType("tblib")
    tblib.pickling_support = SimpleNamespace(install=lambda: None)
    sys.modules["tblib"] = tblib


def pytest_collection_finish() -> None:
    """After each test vLLM's conftest collects garbage; what importing left is none."""
    import torch

    torch.accelerator.empty_host_cache = lambda: None
    gc.unfreeze = lambda: None
    gc.collect()
    gc.freeze()


def _take_the_cpu_for_cuda() -> None:
    """Tests that name their device by hand get the simulated machine's."""
    import torch

    set_default_device = torch.set_default_device

    def call(device: Any) -> None:
        set_default_device("cpu" if str(device).startswith("cuda") else device)

    torch.set_default_device = call


def _put_models(hub: Path) -> None:
    for name, config in _MODELS.items():
        folder = hub / f"models--{name.replace('/', '--')}"
        snapshot = folder / "snapshots" / "0"
        snapshot.mkdir(parents=True)
        snapshot.joinpath("config.json").write_text(json.dumps(config))
        folder.joinpath("refs").mkdir()
        folder.joinpath("refs", "main").write_text("0")
