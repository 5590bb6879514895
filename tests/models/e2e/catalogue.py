"""The models: small ones of the real classes, with the head layouts of the real ones.

Few layers and a small hidden size; head sizes, heads to a KV head, norms, rotations and windows
are those of the family (windows and original context lengths shortened, so that texts reach past
them). Every expert of a mixture is chosen: a choice that rounding flips would hide what is
compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

VOCABULARY = 512

# What a layer's fused launch does, as the table names it.
ROPE, NORM, NORM_V, NORM_OFFSET = "RoPE", "QK norm", "QK norm, V norm", "QK norm + 1"
ROPE_SCALED = "RoPE, Q scaled"
MROPE, NORM_MROPE = "M-RoPE", "QK norm, M-RoPE"
# What each allows to go wrong: names of faults.FAULTS.
FAULTS_OF = {
    ROPE: {"K unrotated", "slots shifted"},
    ROPE_SCALED: {"K unrotated", "slots shifted", "Q not scaled"},
    MROPE: {"K unrotated", "slots shifted", "rows dropped"},
    NORM: {"K unrotated", "slots shifted", "norm weights swapped"},
    NORM_MROPE: {"K unrotated", "slots shifted", "norm weights swapped", "rows dropped"},
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

    hf_config: what the folder's config.json holds.
    layers: attention layers in all.
    fused: how many of them fuse, by what the launch does.
    why_not: why layers that do not fuse do not.
    qk_norm_size: of Q's and K's norm weights, for models that scale their scores by them alone.
    embedding_size: of the token embeddings, made up for by the last norm; less than 1 where they
        are the logits' weights too, or the model repeats its input.
    engine: more of vLLM's engine arguments.
    draft: the config.json of an EAGLE3 draft model, whose layers count too.
    ranks: tensor-parallel processes.
    flash_attn: whether it needs that package, which a stand-in is for.
    generates: whether it predicts tokens.
    ci: whether `make test` runs it.
    """

    title: str
    hf_config: Mapping[str, Any]
    layers: int
    fused: Mapping[str, int] = field(default_factory=dict)
    why_not: str = ""
    qk_norm_size: float = 1.0
    embedding_size: float = 1.0
    engine: Mapping[str, Any] = field(default_factory=dict)
    draft: Mapping[str, Any] | None = None
    ranks: int = 1
    flash_attn: bool = False
    generates: bool = True
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


_QWEN3 = {"num_attention_heads": 8, "num_key_value_heads": 2}
_PHI3 = {
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 96,
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0 + i / 24 for i in range(48)],
        "long_factor": [1.0 + i for i in range(48)],
    },
}
_GEMMA_WINDOWS = {
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 16,
    "hidden_activation": "gelu_pytorch_tanh",
}

MODELS: dict[str, Model] = {
    "qwen3": Model(
        "Qwen3 (8/2/128)",
        _config("Qwen3ForCausalLM", "qwen3", **_QWEN3),
        layers=2,
        fused={NORM: 2},
        ci=True,
    ),
    "qwen3-moe": Model(
        "Qwen3-MoE (8/1/128)",
        _config(
            "Qwen3MoeForCausalLM",
            "qwen3_moe",
            num_attention_heads=8,
            num_experts=2,
            num_experts_per_tok=2,
            moe_intermediate_size=64,
            decoder_sparse_step=1,
            mlp_only_layers=[],
            norm_topk_prob=True,
        ),
        layers=2,
        fused={NORM: 2},
    ),
    "qwen3-fp16": Model(
        "Qwen3 in fp16",
        _config("Qwen3ForCausalLM", "qwen3", **_QWEN3, torch_dtype="float16"),
        layers=2,
        fused={NORM: 2},
    ),
    "qwen3-fp8-cache": Model(
        "Qwen3, KV cache in fp8",
        _config("Qwen3ForCausalLM", "qwen3", **_QWEN3),
        layers=2,
        why_not="the kernel writes no quantized cache",
        engine={"kv_cache_dtype": "fp8"},
    ),
    "qwen3-connector": Model(
        "Qwen3 with a KV connector",
        _config("Qwen3ForCausalLM", "qwen3", **_QWEN3),
        layers=2,
        why_not="ROCM_ATTN is not offered to a run with a connector; TRITON_ATTN serves it",
        engine={
            "kv_transfer_config": {"kv_connector": "ExampleConnector", "kv_role": "kv_both"},
        },
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
    "qwen3-tp2": Model(
        "Qwen3 (8/2/128), tensor parallel in two processes: 4/1/128 in each",
        _config("Qwen3ForCausalLM", "qwen3", **_QWEN3),
        layers=2,
        fused={NORM: 2},
        ranks=2,
    ),
    "eagle3": Model(
        "Qwen3 (8/2/128) with an EAGLE3 draft (6/1/64)",
        _config("Qwen3ForCausalLM", "qwen3", **_QWEN3),
        layers=3,
        fused={NORM: 2, ROPE: 1},
        draft=_config(
            "LlamaForCausalLMEagle3",
            "llama",
            num_hidden_layers=1,
            num_attention_heads=6,
            head_dim=64,
            draft_vocab_size=VOCABULARY,
            num_aux_hidden_states=2,
            eagle_aux_hidden_state_layer_ids=[1, 2],
        ),
    ),
    "llama2": Model(
        "Llama 2 (2/2/128)",
        _config("LlamaForCausalLM", "llama", num_attention_heads=2, num_key_value_heads=2),
        layers=2,
        fused={ROPE: 2},
    ),
    "qwen2.5": Model(
        "Qwen2.5 (14/2/64, biases)",
        _config(
            "Qwen2ForCausalLM",
            "qwen2",
            hidden_size=896,
            num_attention_heads=14,
            num_key_value_heads=2,
            head_dim=64,
        ),
        layers=2,
        fused={ROPE: 2},
    ),
    "gemma3": Model(
        "Gemma 3 (4/2/256, norm weights plus 1, window 16 and full)",
        _config(
            "Gemma3ForCausalLM",
            "gemma3_text",
            num_key_value_heads=2,
            head_dim=256,
            query_pre_attn_scalar=256,
            rope_parameters={
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            },
            **_GEMMA_WINDOWS,
        ),
        layers=2,
        fused={NORM_OFFSET: 2},
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
    "step3.5": Model(
        "Step-3.5 (4/2/128 full, rot 64; 6/2/128, window 16)",
        _config(
            "Step3p5ForCausalLM",
            "step3p5",
            num_attention_groups=2,
            layer_types=["full_attention", "sliding_attention"],
            attention_other_setting={
                "attention_type": "sliding_attention",
                "num_attention_heads": 6,
                "num_attention_groups": 2,
                "head_dim": 128,
            },
            sliding_window=16,
            rope_theta=[5e6, 1e4],
            rope_parameters=None,
            partial_rotary_factors=[0.5, 1.0],
            use_head_wise_attn_gate=True,
            mlp_layer_types=["dense", "sparse"],
            moe_num_experts=2,
            moe_top_k=2,
            moe_intermediate_size=64,
            share_expert_dim=64,
            use_moe_router_bias=True,
            moe_router_scaling_factor=1.0,
            moe_router_activation="sigmoid",
            norm_expert_weight=True,
            need_fp32_gate=True,
            swiglu_limits=[],
            swiglu_limits_shared=[],
        ),
        layers=2,
        fused={NORM_OFFSET: 2},
    ),
    "nemotron": Model(
        "Nemotron (5/1/128, rot 78)",
        _config(
            "NemotronForCausalLM",
            "nemotron",
            num_attention_heads=5,
            norm_eps=1e-5,
            hidden_act="relu2",
            partial_rotary_factor=78 / 128,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 1e4,
                "partial_rotary_factor": 78 / 128,
            },
        ),
        layers=2,
        fused={ROPE: 2},
    ),
    "glm4.5": Model(
        "GLM-4.5 (6/1/128, rot 64, biases)",
        _config(
            "Glm4MoeForCausalLM",
            "glm4_moe",
            num_attention_heads=6,
            attention_bias=True,
            use_qk_norm=True,
            first_k_dense_replace=1,
            n_routed_experts=2,
            num_experts_per_tok=2,
            moe_intermediate_size=64,
            num_nextn_predict_layers=0,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 1e6,
                "partial_rotary_factor": 0.5,
            },
        ),
        layers=2,
        fused={NORM: 2},
    ),
    "granite": Model(
        "Granite (4/1/128, multipliers)",
        _config(
            "GraniteForCausalLM",
            "granite",
            attention_multiplier=0.0884,
            embedding_multiplier=2.0,
            residual_multiplier=0.8,
            logits_scaling=1.0,
        ),
        layers=2,
        fused={ROPE: 2},
    ),
    "phi3-short": Model(
        "Phi-3.5 (2/2/96, LongRoPE, short factors)",
        _config("Phi3ForCausalLM", "phi3", **_PHI3, original_max_position_embeddings=1024),
        layers=2,
        why_not="LongRoPE is a module of its own, which calls no rotary op",
    ),
    "phi3-long": Model(
        "Phi-3.5 (2/2/96, LongRoPE, long factors)",
        _config("Phi3ForCausalLM", "phi3", **_PHI3, original_max_position_embeddings=64),
        layers=2,
        why_not="LongRoPE is a module of its own, which calls no rotary op",
    ),
    "ministral3": Model(
        "Ministral 3 (4/1/128, YaRN, Q scaled by position)",
        _config(
            "Ministral3ForCausalLM",
            "ministral3",
            llama_4_scaling={"original_max_position_embeddings": 16, "beta": 0.1},
            rope_parameters={
                "type": "yarn",
                "rope_type": "yarn",
                "rope_theta": 1e6,
                "factor": 16.0,
                "original_max_position_embeddings": 32,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
            },
        ),
        layers=2,
        fused={ROPE_SCALED: 2},
    ),
    "glm4": Model(
        "GLM-4 (4/1/128, rot 64, GPT-J rotation)",
        _config(
            "Glm4ForCausalLM",
            "glm4",
            attention_bias=True,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.5,
            },
        ),
        layers=2,
        fused={ROPE: 2},
    ),
    "lfm2": Model(
        "LFM2 (4/2/64, RoPE by head, short convolutions between)",
        _config(
            "Lfm2ForCausalLM",
            "lfm2",
            hidden_size=256,
            num_key_value_heads=2,
            layer_types=["conv", "full_attention"],
            conv_L_cache=3,
            norm_eps=1e-5,
            block_auto_adjust_ff_dim=False,
            block_dim=256,
            conv_dim=256,
            full_attn_idxs=[1],
        ),
        layers=1,
        fused={NORM: 1},
        engine={"enable_prefix_caching": False},
    ),
    "olmoe": Model(
        "OLMoE (4/4/64, norm over the whole projection)",
        _config(
            "OlmoeForCausalLM",
            "olmoe",
            hidden_size=256,
            head_dim=64,
            num_key_value_heads=4,
            num_experts=2,
            num_experts_per_tok=2,
            intermediate_size=64,
        ),
        layers=2,
        why_not="the norm is over all heads together",
    ),
    "qwen3-next": Model(
        "Qwen3-Next (4/1/256, gated Q, linear attention between, padded pages)",
        _config(
            "Qwen3NextForCausalLM",
            "qwen3_next",
            head_dim=256,
            layer_types=["linear_attention", "full_attention"],
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=64,
            linear_value_head_dim=64,
            linear_conv_kernel_dim=4,
            num_experts=2,
            num_experts_per_tok=2,
            moe_intermediate_size=64,
            shared_expert_intermediate_size=64,
            decoder_sparse_step=1,
            mlp_only_layers=[],
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 1e7,
                "partial_rotary_factor": 0.25,
            },
        ),
        layers=1,
        # With it, states lie in every block, and the model runner copies them between blocks.
        engine={"enable_prefix_caching": False},
        fused={NORM_OFFSET: 1},
    ),
    "qwen2.5-vl": Model(
        "Qwen2.5-VL's text model (6/1/128, biases, M-RoPE; as Qwen2, positions of an image)",
        _config(
            "Qwen2ForCausalLM",
            "qwen2",
            hidden_size=768,
            num_attention_heads=6,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 1e3,  # 1e6 hardly turns what has the rows of height and width
                "mrope_section": [16, 24, 24],
            },
        ),
        layers=2,
        fused={MROPE: 2},
    ),
    "qwen3-vl": Model(
        "Qwen3-VL's text model (8/2/128, M-RoPE; as Qwen3, positions of an image)",
        _config(
            "Qwen3ForCausalLM",
            "qwen3",
            num_attention_heads=8,
            num_key_value_heads=2,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 5e6,
                "mrope_section": [24, 20, 20],
                "mrope_interleaved": True,
            },
        ),
        layers=2,
        fused={NORM_MROPE: 2},
    ),
    "gemma3n": Model(
        "Gemma 3n (4/1/256, V norm, KV-shared layers)",
        _config(
            "Gemma3nForCausalLM",
            "gemma3n_text",
            num_hidden_layers=4,
            head_dim=256,
            num_kv_shared_layers=2,
            hidden_size_per_layer_input=32,
            vocab_size_per_layer_input=VOCABULARY,
            altup_num_inputs=2,
            laurel_rank=16,
            activation_sparsity_pattern=[0.95, 0.0, 0.0, 0.0],
            rope_theta=1e6,
            rope_local_base_freq=1e4,
            rope_parameters=None,
            **{**_GEMMA_WINDOWS, "layer_types": ["sliding_attention", "full_attention"] * 2},
        ),
        layers=4,
        fused={NORM_V: 2},
        why_not="two layers share another's KV cache",
        qk_norm_size=0.25,
        embedding_size=0.02,
    ),
    "encoder": Model(
        "Qwen3 as an encoder (8/2/128, no cache)",
        _config("Qwen3ForCausalLM", "qwen3", **_QWEN3, is_causal=False),
        layers=2,
        why_not="encoder-only layers write no cache",
        engine={"runner": "pooling", "convert": "embed", "max_num_batched_tokens": 512},
        generates=False,
    ),
    "deepseek": Model(
        "DeepSeek-V2 (MLA)",
        _config(
            "DeepseekV2ForCausalLM",
            "deepseek_v2",
            num_key_value_heads=4,
            q_lora_rank=64,
            kv_lora_rank=512,
            qk_nope_head_dim=128,
            qk_rope_head_dim=64,
            v_head_dim=128,
            first_k_dense_replace=2,
            n_routed_experts=2,
            n_shared_experts=1,
            num_experts_per_tok=2,
            moe_intermediate_size=64,
        ),
        layers=2,
        flash_attn=True,
        why_not="MLA has another cache and another prologue",
    ),
}
