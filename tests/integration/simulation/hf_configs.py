"""Hugging Face configurations of small models, by what they are examples of."""

from typing import Any

QWEN3: dict[str, Any] = {
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

# A window on every layer.
WINDOWED: dict[str, Any] = {
    **QWEN3,
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "sliding_window": 512,
}

# Two head sizes: 256 with a window, 512 without.
GEMMA4: dict[str, Any] = {
    **QWEN3,
    "architectures": ["Gemma4ForCausalLM"],
    "model_type": "gemma4_text",
    "num_key_value_heads": 2,
    "head_dim": 256,
    "layer_types": ["sliding_attention", "full_attention"],
    "per_layer_config": {"1": {"head_dim": 512}},
    "sliding_window": 512,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 0,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {
            "rope_type": "proportional",
            "partial_rotary_factor": 0.25,
            "rope_theta": 1e6,
        },
    },
}

# MLA.
DEEPSEEK: dict[str, Any] = {
    **QWEN3,
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "first_k_dense_replace": 2,
}
del DEEPSEEK["head_dim"]

# Encoder layers alone.
BERT: dict[str, Any] = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}

# No attention.
MAMBA: dict[str, Any] = {
    "architectures": ["MambaForCausalLM"],
    "model_type": "mamba",
    "hidden_size": 256,
    "state_size": 16,
    "num_hidden_layers": 2,
    "vocab_size": 1024,
    "torch_dtype": "bfloat16",
}
