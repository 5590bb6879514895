"""The models: small ones of the real classes, with the head layouts of the real ones.

Few layers and a small hidden size; head sizes, heads to a KV head, norms, rotations and windows
are those of the family (windows and original context lengths shortened, so that texts reach past
them).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

VOCABULARY = 512

# What a layer's fused launch does, as the table names it.
ROPE, NORM, NORM_V, NORM_OFFSET = "RoPE", "QK norm", "QK norm, V norm", "QK norm + 1"
# What each allows to go wrong: names of faults.FAULTS.
FAULTS_OF = {
    ROPE: {"K unrotated", "slots shifted"},
    NORM: {"K unrotated", "slots shifted", "norm weights swapped"},
    NORM_V: {"K unrotated", "slots shifted", "norm weights swapped", "V not normed"},
    NORM_OFFSET: {
        "K unrotated",
        "slots shifted",
        "norm weights swapped",
        "weight offset forgotten",
    },
}


@dataclass(frozen=True)
class Model:
    """One row.

    hf_config: what the folder's config.json holds. layers: attention layers in all. fused: how
    many of them fuse, by what the launch does. why_not: why layers that do not fuse do not.
    qk_norm_size: of Q's and K's norm weights, for models that scale their scores by them alone.
    engine: more of vLLM's engine arguments. ci: whether `make test` runs it.
    """

    title: str
    hf_config: Mapping[str, Any]
    layers: int
    fused: Mapping[str, int] = field(default_factory=dict)
    why_not: str = ""
    qk_norm_size: float = 1.0
    engine: Mapping[str, Any] = field(default_factory=dict)
    ci: bool = False

    @property
    def faults(self) -> set[str]:
        """The deliberate faults that its fused layers allow."""
        return set().union(*(FAULTS_OF[kind] for kind in self.fused))


def _config(architecture: str, model_type: str, **changes: Any) -> dict[str, Any]:
    """A config.json; what most of the families have in common, and the changes."""
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_size": 192,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 128,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        **changes,
    }


_GEMMA_WINDOWS = {
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 16,
    "hidden_activation": "gelu_pytorch_tanh",
}

MODELS: dict[str, Model] = {
    "qwen3": Model(
        "Qwen3 (8/2/128)",
        _config("Qwen3ForCausalLM", "qwen3", num_attention_heads=8, num_key_value_heads=2),
        layers=2,
        fused={NORM: 2},
        ci=True,
    ),
    "llama3.2": Model(
        "Llama 3.2 (8/2/64, llama3 scaling)",
        _config(
            "LlamaForCausalLM",
            "llama",
            num_attention_heads=8,
            num_key_value_heads=2,
            head_dim=64,
            rms_norm_eps=1e-5,
            rope_parameters={
                "rope_type": "llama3",
                "rope_theta": 5e5,
                "factor": 32.0,
                "high_freq_factor": 4.0,
                "low_freq_factor": 1.0,
                "original_max_position_embeddings": 16,
            },
        ),
        layers=2,
        fused={ROPE: 2},
        ci=True,
    ),
    "gemma4": Model(
        "Gemma 4 E2B (4/1/256 and 4/1/512, V norm, KV-shared layers, window 16)",
        _config(
            "Gemma4ForCausalLM",
            "gemma4_text",
            num_hidden_layers=4,
            head_dim=256,
            global_head_dim=512,
            num_kv_shared_layers=2,
            hidden_size_per_layer_input=32,
            vocab_size_per_layer_input=VOCABULARY,
            final_logit_softcapping=30.0,
            rope_parameters={
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                "full_attention": {
                    "rope_type": "proportional",
                    "partial_rotary_factor": 0.25,
                    "rope_theta": 1e6,
                },
            },
            **{**_GEMMA_WINDOWS, "layer_types": ["sliding_attention", "full_attention"] * 2},
        ),
        layers=4,
        fused={NORM_V: 2},
        why_not="two layers share another's KV cache",
        qk_norm_size=0.25,
        ci=True,
    ),
}
