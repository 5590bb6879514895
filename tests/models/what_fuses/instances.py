"""A small config.json for each architecture of the registry. Imported on the machine.

Where Transformers or vLLM has the configuration class, from that (`shrink.py`); for models whose
class lies with their checkpoint, from what vLLM's model reads. What a class needs besides is in
`CHANGES`.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from e2e.catalogue import MODELS
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig
from transformers.models.auto import modeling_auto
from vllm.model_executor.models import ModelRegistry, supports_mrope
from vllm.transformers_utils.config import _CONFIG_REGISTRY

from what_fuses.shrink import ABSENT, VOCABULARY, changed, give_mrope_sections, small

# What most models' own configuration classes have, by the names of Llama and of the mixtures.
_LLAMA: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
}
_MOE: dict[str, Any] = {
    "num_experts": 4,
    "n_routed_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "n_shared_experts": 1,
    "num_shared_experts": 1,
    "first_k_dense_replace": 0,
    "norm_topk_prob": True,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.0,
    "score_function": "sigmoid",
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
}
_MLA: dict[str, Any] = {
    "num_key_value_heads": 4,
    "q_lora_rank": 64,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}

_BAILING: dict[str, Any] = {
    "use_bias": False,
    "use_qkv_bias": False,
    "use_rmsnorm": True,
    "moe_shared_expert_intermediate_size": 64,
    "num_shared_experts": 1,
    "embedding_dropout": 0.0,
    "moe_router_enable_expert_bias": True,
}
_K2: dict[str, Any] = {
    "rope_head_dim": 64,
    "query_key_norm": True,
    "attention_gate_func": None,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "layernorm_num_groups": 1,
    "moe_gate_bias": False,
    "mova_num_experts": 0,
    "mova_num_experts_per_tok": 0,
    "router_scaling_factor": 1.0,
    "router_score_func": "sigmoid",
}
_MIMO_V2: dict[str, Any] = {
    "hybrid_layer_pattern": [0],
    "moe_layer_freq": [0],
    "layernorm_epsilon": 1e-6,
    "head_dim": 128,
    "v_head_dim": 64,
    "swa_head_dim": 128,
    "swa_v_head_dim": 64,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 2,
    "sliding_window": 64,
    "sliding_window_size": 64,
}
_ALICE: dict[str, Any] = {
    "kda_allow_negative_eigenvalues": False,
    "router_score_function": "sigmoid",
    "router_bias_correction": True,
    "block_attn_res_block_size": 1,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
}
_TELECHAT: dict[str, Any] = {
    "n_layer": 1,
    "n_head": 4,
    "num_key_value_heads": 4,
    "ffn_hidden_size": 256,
    "layer_norm_epsilon": 1e-5,
}
_LFM2: dict[str, Any] = {
    "num_hidden_layers": 2,
    "layer_types": ["conv", "full_attention"],
    "full_attn_idxs": [1],
    "block_dim": 256,
    "conv_dim": 256,
}
_LONGCAT: dict[str, Any] = {
    **dict.fromkeys(("mla_scale_q_lora", "mla_scale_kv_lora"), True),
    "zero_expert_type": "identity",
    "zero_expert_num": 2,
}
_GLM5_NEXT: dict[str, Any] = {
    "mhc": False,
    "mla_use_nope": True,
    "indexer_rope_interleave": True,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
}
_KIMI_LINEAR: dict[str, Any] = {
    **_MLA,
    "q_lora_rank": None,
    "mla_use_nope": True,
}
_INKLING: dict[str, Any] = {
    "dense_mlp_idx": 1,  # its mixture of experts asks for a stream of a GPU
    "unpadded_vocab_size": VOCABULARY,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 2,
}
# All but the largest of DeepSeek-VL2 have plain multi-head attention.
_DEEPSEEK_VL2: dict[str, Any] = {
    "language_config": {
        **_LLAMA,
        **_MOE,
        "model_type": "deepseek_v2",
        "num_key_value_heads": 4,
        "first_k_dense_replace": 1,
        **dict.fromkeys(("kv_lora_rank", "q_lora_rank"), None),
        **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim"), 0),
        "v_head_dim": 64,
        "use_mla": False,
    },
    "text_config": ABSENT,
}
_SOLAR: dict[str, Any] = {
    **{f"bskcn_{i}": [] for i in (1, 2, 3, 4)},
    "bskcn_tv": [1.0, 1.0],
}

# By model type: architectures that it serves besides those that Transformers knows.
_SERVES = {
    "alpamayo2_super": "Alpamayo2Super",
    "bagel": "BagelForConditionalGeneration",
    "bailing_moe_v3_vl": "BailingMoeV3VLForConditionalGeneration",
    "bert": "BertSpladeSparseEmbeddingModel HF_ColBERT",
    "colqwen3": "ColQwen3",
    "deepseek_v41": "DeepseekV41ForCausalLM",
    "deepseek_vl_v2": "DeepseekVLV2ForCausalLM DeepseekOCRForCausalLM DeepseekOCR2ForCausalLM",
    "dots3_note": "Dots3NoteForCausalLM",
    "flint": "FlintForCausalLM",
    "funaudiochat": "FunAudioChatForConditionalGeneration",
    "internlm2": "InternLM2ForCausalLM InternLM2ForRewardModel",
    "isaac": "IsaacForConditionalGeneration",
    "kimi_k25": "KimiK25ForConditionalGeneration",
    "kimi_k3": "KimiK3ForConditionalGeneration",
    "kimi_vl": "KimiVLForConditionalGeneration",
    "lfm2": "Lfm2BidirectionalModel ColBERTLfm2Model",
    "llama": "LlamaBidirectionalModel LlamaBidirectionalForSequenceClassification",
    "midashenglm": "MiDashengLMModel",
    "minimax_m3_vl": "MiniMaxM3SparseForCausalLM",
    "modernbert": "ColBERTModernBertModel",
    "moondream3": "Moondream3ForCausalLM",
    "openvla": "OpenVLAForActionPrediction",
    "orion": "OrionForCausalLM",
    "ovis": "Ovis",
    "PanguEmbedded": "PanguEmbeddedForCausalLM",
    "qwen2": "Qwen2ForRewardModel Qwen2ForProcessRewardModel",
    "qwen3": "JinaForRanking JinaEmbeddingsV5Model VoyageQwen3BidirectionalEmbedModel",
    "step1": "Step1ForCausalLM",
    "step3_vl": "Step3VLForConditionalGeneration",
    "step5": "Step5ForCausalLM",
    "step5_vl": "Step5ForConditionalGeneration",
    "ultravbert": "ColUltraVBertForRetrieval",
    "ultravox": "UltravoxModel",
    "unlimited_ocr": "UnlimitedOCRForCausalLM",
    "xlm-roberta": "BgeM3EmbeddingModel",
}
# Their classes inherit M-RoPE; their language models turn by plain positions.
_PLAIN_POSITIONS = {"Exaone4_5_ForConditionalGeneration"}
# By architecture: what tests of whole models have.
_WHOLE_MODELS = {
    model.hf_config["architectures"][0]: model.hf_config
    for model in (MODELS[name] for name in ("gemma3n", "gemma4", "glm4.5", "step3.5"))
}
_GEMMA4: dict[str, Any] = {
    "text_config": {**MODELS["gemma4"].hf_config, "per_layer_config": ABSENT}
}
# By architecture: the model type of another's configuration, and what is not as its defaults.
CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    # Models whose configuration class lies with their checkpoint.
    "BailingMoeForCausalLM": ("bailing_moe", {**_MOE, **_BAILING}),
    "BailingMoeV2ForCausalLM": ("bailing_moe_v2", {**_MOE, **_BAILING, "use_qk_norm": True}),
    "BailingMoeV2_5ForCausalLM": (
        "bailing_hybrid",
        {**_MOE, **_BAILING, **_MLA, "num_hidden_layers": 2, "layer_group_size": 2},
    ),
    "BailingMoeV3ForCausalLM": (
        "bailing_hybrid_v3",
        {
            **_MOE,
            **_BAILING,
            **_MLA,
            "num_hidden_layers": 2,
            "layer_group_size": 2,
            "short_conv_kernel_size": 4,
            "no_kda_lora": True,
        },
    ),
    "DeepseekForCausalLM": ("deepseek", _MOE),
    "DomynEdgeForCausalLM": (
        "domyn_edge",
        {
            "num_hidden_layers": 1,
            "window_sizes": [[63, 0]],
            "position_layers": ["rope"],
            "per_layer_config": {},
        },
    ),
    "ExaoneForCausalLM": (
        "exaone",
        {"activation_function": "silu", "layer_norm_epsilon": 1e-5, "num_layers": 1},
    ),
    "IQuestLoopCoderForCausalLM": ("iquestloopcoder", {"loop_num": 2, "loop_window_size": 64}),
    "K2HorizonForCausalLM": ("k2_horizon", {**_MOE, **_K2}),
    "LongcatFlashNgramForCausalLM": (
        "longcat_flash",
        {
            "emb_neighbor_num": 2,
            "emb_split_num": 2,
            "ngram_vocab_size_ratio": 2,
            **_LONGCAT,
        },
    ),
    "MiniCPMForCausalLM": (
        "minicpm",
        {"scale_emb": 1.0, "scale_depth": 1.0, "dim_model_base": 64, "num_experts": 0},
    ),
    "MiMoForCausalLM": ("mimo", {"num_nextn_predict_layers": 1}),
    "MiMoV2ForCausalLM": ("mimo_v2", {**_MOE, **_MIMO_V2}),
    "MistralLarge3ForCausalLM": ("deepseek_v3", {}),
    "PanguProMoEV2ForCausalLM": (
        "pangu_pro_moe_v2",
        {
            **_MOE,
            "param_sink_number": 16,
            "qk_nope_dim": 32,
            "qk_rope_dim": 32,
            "v_channels": 64,
        },
    ),
    "PanguUltraMoEForCausalLM": ("pangu_ultra_moe", {**_MOE, **_MLA}),
    "Param2MoEForCausalLM": ("param2moe", {**_MOE, **_BAILING, "use_qk_norm": True}),
    "PhiMoEForCausalLM": ("phimoe_own", _MOE),
    "Plamo3ForCausalLM": (
        "plamo3",
        {
            "layer_types": ["full_attention"],
            "rope_local_theta": 1e4,
            "interleaved_sliding_window": [None],
        },
    ),
    "Rnj1ForCausalLM": (
        "rnj1",
        {
            "layer_types": ["full_attention"],
            "query_pre_attn_scalar": 64,
            "hidden_activation": "gelu_pytorch_tanh",
            "sliding_window": 64,
            "final_logit_softcapping": None,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 1e4},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
    "SarvamMoEForCausalLM": ("sarvam_moe", {**_MOE, **_BAILING}),
    "SarvamMLAForCausalLM": ("sarvam_mla", {**_MOE, **_BAILING, **_MLA}),
    "SolarForCausalLM": ("solar", _SOLAR),
    "Step3TextForCausalLM": (
        "step3_text",
        {"moe_layers_enum": "1", "share_q_dim": 256, "num_attention_groups": 2},
    ),
    "TeleChat2ForCausalLM": ("telechat", _TELECHAT),
    "TeleFLMForCausalLM": ("teleflm", {"use_mup": False}),
    "ChatGLMModel": (
        "chatglm",
        {"original_rope": True, "multi_query_attention": True, "tie_word_embeddings": False},
    ),
    "DoryForCausalLM": ("dory", {"n_recurrent_layers": None}),
    "AliceAIForCausalLM": ("qwen3_next", _ALICE),
    "Glm5NextForCausalLM": ("glm5_next_text", _GLM5_NEXT),
    "Glm5NextForConditionalGeneration": ("", {"text_config": _GLM5_NEXT}),
    # Changes to the defaults.
    "HYV3ForCausalLM": (
        "",
        {
            "first_k_dense_replace": 0,
            "expert_hidden_dim": 64,
            "route_norm": True,
            "qk_norm": True,
            "num_nextn_predict_layers": 1,
        },
    ),
    "Lfm2ForCausalLM": ("", _LFM2),
    "Lfm2BidirectionalModel": ("", _LFM2),
    "ColBERTLfm2Model": ("", _LFM2),
    "Lfm2VlForConditionalGeneration": ("", {"text_config": _LFM2}),
    "Lfm2MoeForCausalLM": (
        "",
        {
            "num_hidden_layers": 2,
            "num_dense_layers": 1,
            "layer_types": ["conv", "full_attention"],
        },
    ),
    "Llama4ForCausalLM": ("llama4_text", {}),
    "LongcatFlashForCausalLM": ("", _LONGCAT),
    "MiniMaxM2ForCausalLM": ("", {"rotary_dim": 64, "scoring_func": "sigmoid"}),
    "MiMoV2FlashForCausalLM": (
        "",
        {
            **_MIMO_V2,
            "hybrid_layer_pattern": [0, 1],
            "moe_layer_freq": [0, 0],
        },
    ),
    "NemotronForCausalLM": ("", {"num_key_value_heads": 2}),
    "Zamba2ForCausalLM": (
        "",
        {
            "attention_hidden_size": 512,
            "attention_head_dim": 128,
            "mamba_headdim": 64,
            "hybrid_layer_ids": [1],
        },
    ),
    "Gemma3TextModel": ("", {"use_bidirectional_attention": True}),
    "GteModel": ("", {"position_embedding_type": "rope"}),
    "NomicBertModel": (
        "",
        {
            "activation_function": "swiglu",
            **dict.fromkeys(("mlp_fc1_bias", "mlp_fc2_bias", "qkv_proj_bias"), False),
            "rotary_emb_scale_base": None,
            "rotary_emb_interleaved": False,
            "layer_norm_epsilon": 1e-12,
            "n_inner": 256,
            "n_embd": 256,
            "n_layer": 1,
        },
    ),
    "LlamaBidirectionalModel": ("", {"pooling": "avg"}),
    "LlamaBidirectionalForSequenceClassification": ("", {"pooling": "avg"}),
    "BagelForConditionalGeneration": ("", {"llm_config": {"qk_norm": True}}),
    "BailingMoeV3VLForConditionalGeneration": (
        "",
        {
            "text_config": {
                "num_hidden_layers": 2,
                "layer_group_size": 2,
                "layer_types": ["linear_attention", "full_attention"],
                "no_kda_lora": True,
            }
        },
    ),
    "Gemma4ForConditionalGeneration": (
        "",
        {**_GEMMA4, "vision_config": {"model_type": "gemma4_vision", "num_hidden_layers": 1}},
    ),
    "Gemma4UnifiedForConditionalGeneration": (
        "",
        {**_GEMMA4, "vision_config": {"model_type": "gemma4_unified_vision"}},
    ),
    "Glm4vMoeForConditionalGeneration": (
        "",
        {"text_config": {"head_dim": 64, "use_qk_norm": False, "first_k_dense_replace": 0}},
    ),
    "KimiVLForConditionalGeneration": ("", {"text_config": {"n_group": 1, "topk_group": 1}}),
    "Qwen3VLMoeForConditionalGeneration": ("", {"text_config": {"norm_topk_prob": True}}),
    "FunAudioChatForConditionalGeneration": (
        "",
        {
            "text_config": {**_LLAMA, "model_type": "qwen3"},
            "audio_config": {"pad_token_id": 0, "codebook_size": 512},
        },
    ),
    "Ovis": (
        "",
        {
            "hidden_size": 256,
            "llm_config": {**_LLAMA, "model_type": "qwen2"},
            "text_config": ABSENT,
            "visual_tokenizer_config": {
                "model_type": "siglip_visual_tokenizer",
                "backbone_config": {"model_type": "siglip_vision_model", "num_hidden_layers": 1},
            },
        },
    ),
    "QianfanOCRForConditionalGeneration": (
        "",
        {"force_image_size": 448, "ps_version": "v2", "select_layer": -1},
    ),
    "MiniMaxM3SparseForConditionalGeneration": (
        "",
        {
            "vision_config": {
                "hidden_size": 256,
                "intermediate_size": 256,
                "num_attention_heads": 4,
                "num_hidden_layers": 1,
                "num_channels": 3,
                "patch_size": 14,
                "layer_norm_eps": 1e-5,
                "img_token_compression_config": {
                    "spatial_merge_size": 2,
                    "temporal_patch_size": 2,
                },
            },
            "projector_hidden_size": 256,
        },
    ),
    "UltravoxModel": (
        "",
        {
            "hidden_size": 256,
            "text_config": {**_LLAMA, "model_type": "llama"},
            "wrapped_model_config": ABSENT,
            "vocab_size": VOCABULARY,
        },
    ),
    "Qwen4ExpForConditionalGeneration": ("", {"text_config": {"output_gate_type": "sigmoid"}}),
    "KimiLinearForCausalLM": ("", _KIMI_LINEAR),
    "KimiK3ForConditionalGeneration": ("", {"text_config": _KIMI_LINEAR}),
    "InklingForCausalLM": ("inkling_model", _INKLING),
    "InklingForConditionalGeneration": (
        "",
        {"text_config": _INKLING, "mtp_config": {"num_nextn_predict_layers": 1}},
    ),
    "CohereCompassForConditionalGeneration": (
        "",
        {
            "tie_word_embeddings": True,
            "text_config": {
                "rope_parameters": {
                    "full_attention": {"rope_type": "default", "rope_theta": 1e4},
                }
            },
        },
    ),
    "DeepseekVLV2ForCausalLM": ("", _DEEPSEEK_VL2),
    "DeepseekOCRForCausalLM": ("", _DEEPSEEK_VL2),
    "DeepseekOCR2ForCausalLM": ("", _DEEPSEEK_VL2),
    "UnlimitedOCRForCausalLM": ("", _DEEPSEEK_VL2),
    "Ernie4_5_VLMoeForConditionalGeneration": (
        "",
        {
            "vision_config": {"embed_dim": 1280, "mlp_ratio": 4},
            "hidden_size": 512,
            "pixel_hidden_size": 1280,
            "im_patch_id": 1,
            "spatial_conv_size": 2,
            "temporal_conv_size": 2,
            "use_temporal_conv": True,
            # The checkpoints' config.json is flat, and read so.
            "vocab_size": VOCABULARY,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "intermediate_size": 256,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
            "hidden_act": "silu",
            "use_bias": False,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5e5,
                "mrope_section": [22, 22, 20],
            },
            "moe_num_experts": [4, 4],
            "moe_k": 2,
            "moe_num_shared_experts": 1,
            "moe_intermediate_size": [64, 64],
            "moe_layer_start_index": [1, 1],
            "moe_layer_end_index": [1, 1],
            "moe_layer_interval": 1,
        },
    ),
    # Else the same stack 128 times over, which is traced as one graph.
    "HrmTextForCausalLM": (
        "",
        {"num_layers_per_stack": 1, "H_cycles": 1, "L_cycles": 1, "num_hidden_layers": 2},
    ),
    "MambaForCausalLM": ("", {"num_hidden_layers": 1, "vocab_size": VOCABULARY}),
    "Mamba2ForCausalLM": (
        "",
        {
            "hidden_size": 256,
            "num_hidden_layers": 1,
            "num_heads": 8,
            "state_size": 16,
            "n_groups": 1,
            "vocab_size": VOCABULARY,
        },
    ),
    "GlmOcrForConditionalGeneration": (
        "",
        {"text_config": {"rope_parameters": {"partial_rotary_factor": 1.0}}},
    ),
    "Granite4VisionForConditionalGeneration": (
        "",
        {"deepstack_layer_map": [[-1, 0]], "downsample_rate": "4/8"},
    ),
    "Molmo2ForConditionalGeneration": ("", {"vision_config": {"num_hidden_layers": 25}}),
    "Moondream3ForCausalLM": (
        "",
        {
            **dict.fromkeys(("text_config", "vision_config"), ABSENT),
            "config": {
                "text": {
                    "dim": 256,
                    "ff_dim": 256,
                    "n_layers": 1,
                    "n_heads": 4,
                    "n_kv_heads": 4,
                    "vocab_size": VOCABULARY,
                },
                "vision": {"enc_n_layers": 1},
            },
        },
    ),
    "Qwen3OmniMoeForConditionalGeneration": (
        "",
        {
            "thinker_config": {
                "text_config": {"tie_word_embeddings": False},
                "vision_config": {"image_size": 768, "apply_vit_abs_pos_embed": True},
            }
        },
    ),
    "Step3VLForConditionalGeneration": (
        "",
        {
            "text_config": {
                "architectures": ["Step3TextForCausalLM"],
                "moe_layers_enum": "1",
                "share_q_dim": 256,
                "num_attention_groups": 2,
            }
        },
    ),
    "Step3p7ForConditionalGeneration": (
        "",
        {
            "text_config": dict(MODELS["step3.5"].hf_config),
            "vision_config": {"output_dim": None},
        },
    ),
    "VoxtralForConditionalGeneration": (
        "",
        {
            "audio_config": {
                "downsample_factor": 4,
                "window_size": 400,
                "hop_length": 160,
                "sampling_rate": 16000,
            }
        },
    ),
    "NemotronH_Omni_Reasoning_V3": (
        "",
        {
            "force_image_size": 512,
            "patch_size": 16,
            "template": "",
            "ps_version": "v2",
            "image_tag_type": "internvl",
            "vit_hidden_size": 1280,
            "norm_mean": [0.5, 0.5, 0.5],
            "norm_std": [0.5, 0.5, 0.5],
            "vision_config": {"args": {"model": "vit_huge_patch16_224"}},
            "text_config": {"dtype": "bfloat16"},
        },
    ),
    "Exaone4_5_ForConditionalGeneration": ("", {"vocab_size": VOCABULARY}),
    "Step5ForCausalLM": (
        "",
        {"num_attention_groups": 2, "sparse_config": {"enabled": False}},
    ),
    "Step5ForConditionalGeneration": (
        "",
        {
            "text_config": {
                "architectures": ["Step5ForCausalLM"],
                "num_attention_groups": 2,
                "sparse_config": {"enabled": False},
            }
        },
    ),
    "ColModernVBertForRetrieval": ("modernvbert", {}),
    "CohereAsrForConditionalGeneration": (
        "",
        {
            "transf_decoder": {
                "config_dict": {
                    "hidden_size": 256,
                    "inner_size": 256,
                    "hidden_act": "relu",
                    "num_attention_heads": 4,
                    "num_layers": 1,
                    "max_sequence_length": 1024,
                }
            },
            "head": {"num_classes": VOCABULARY, "hidden_size": 256},
            "encoder": {
                "feat_in": 128,
                "n_layers": 1,
                "d_model": 256,
                "feat_out": -1,
                "causal_downsampling": False,
                "subsampling": "dw_striding",
                "subsampling_factor": 8,
                "subsampling_conv_channels": 256,
                "ff_expansion_factor": 4,
                "self_attention_model": "rel_pos",
                "n_heads": 4,
                "att_context_size": [-1, -1],
                "xscaling": False,
                "untie_biases": True,
                "pos_emb_max_len": 5000,
                "conv_kernel_size": 9,
                "conv_norm_type": "batch_norm",
                "conv_context_size": None,
            },
        },
    ),
    "AfmoeForCausalLM": (
        "",
        {"score_func": "sigmoid", "route_norm": True, "n_group": 1, "topk_group": 1},
    ),
    "DbrxForCausalLM": ("", {"attn_config": {"rope_theta": 1e4}}),
    "DeepseekV32ForCausalLM": (
        "",
        {"index_topk": 64, "index_n_heads": 4, "index_head_dim": 128},
    ),
    "DeepseekV2ForCausalLM": ("", {"n_group": 1, "topk_group": 1}),
    "Glm4vForConditionalGeneration": (
        "",
        {"text_config": {"rope_parameters": {"partial_rotary_factor": 0.5}}},
    ),
    "Glm4MoeLiteForCausalLM": ("", {"first_k_dense_replace": 0}),
    "GraniteMoeHybridForCausalLM": (
        "",
        {
            "num_hidden_layers": 2,
            "layer_types": ["mamba", "attention"],
            "mamba_n_heads": 8,
            "mamba_d_head": "auto",
            "position_embedding_type": "rope",
        },
    ),
    "Qwen4ExpForCausalLM": ("qwen4_exp_text", {"output_gate_type": "sigmoid"}),
}


def _draft(architecture: str, model_type: str, **changes: Any) -> dict[str, Any]:
    return {**_LLAMA, "architectures": [architecture], "model_type": model_type, **changes}


_DFLASH = {
    "block_size": 4,
    "dflash_config": {"target_layer_ids": [0], "mask_token_id": 1},
    "layer_types": ["full_attention"],
}
# By architecture of a draft: its target, the method, the draft's own config.json (None: the same).
DRAFTS: dict[str, tuple[str, str, dict[str, Any] | None]] = {
    **{
        draft: (target, "mtp", None)
        for draft, target in {
            "BailingMoeV25MTPModel": "BailingMoeV2_5ForCausalLM",
            "BailingMoeV3MTPModel": "BailingMoeV3ForCausalLM",
            "DeepSeekMTPModel": "DeepseekV3ForCausalLM",
            "DeepseekV32MTPModel": "GlmMoeDsaForCausalLM",
            "DeepSeekV4MTPModel": "DeepseekV4ForCausalLM",
            "ErnieMTPModel": "Ernie4_5_MoeForCausalLM",
            "Exaone4_5_MTP": "Exaone4_5_ForConditionalGeneration",
            "ExaoneMoeMTP": "ExaoneMoeForCausalLM",
            "Glm4MoeLiteMTPModel": "Glm4MoeLiteForCausalLM",
            "Glm4MoeMTPModel": "Glm4MoeForCausalLM",
            "Glm5NextMTPModel": "Glm5NextForConditionalGeneration",
            "GlmOcrMTPModel": "GlmOcrForConditionalGeneration",
            "HYV3MTPModel": "HYV3ForCausalLM",
            "HYV4MTPModel": "HYV4ForCausalLM",
            "InklingMTPModel": "InklingForConditionalGeneration",
            "LongCatFlashMTPModel": "LongcatFlashForCausalLM",
            "MiMoMTPModel": "MiMoForCausalLM",
            "MiMoV2MTPModel": "MiMoV2FlashForCausalLM",
            "NemotronHMTPModel": "NemotronHForCausalLM",
            "OpenPanguMTPModel": "PanguUltraMoEForCausalLM",
            "Qwen3_5MoeMTP": "Qwen3_5MoeForConditionalGeneration",
            "Qwen3_5MTP": "Qwen3_5ForConditionalGeneration",
            "Qwen3NextMTP": "Qwen3NextForCausalLM",
            "Qwen4ExpMTP": "Qwen4ExpForConditionalGeneration",
            "Step3p5MTP": "Step3p5ForCausalLM",
        }.items()
    },
    "EagleCohereForCausalLM": (
        "CohereForCausalLM",
        "eagle",
        _draft("CohereForCausalLM", "cohere", layer_types=["full_attention"]),
    ),
    "EagleLlamaForCausalLM": ("LlamaForCausalLM", "eagle", _draft("LlamaForCausalLM", "llama")),
    "EagleMiniCPMForCausalLM": (
        "MiniCPMForCausalLM",
        "eagle",
        _draft(
            "MiniCPMForCausalLM",
            "minicpm",
            scale_emb=1.0,
            scale_depth=1.0,
            dim_model_base=64,
            num_experts=0,
        ),
    ),
    "EagleMistralForCausalLM": (
        "MistralForCausalLM",
        "eagle",
        _draft("MistralForCausalLM", "mistral"),
    ),
    "Eagle3LlamaForCausalLM": (
        "LlamaForCausalLM",
        "eagle3",
        _draft("LlamaForCausalLM", "llama", draft_vocab_size=VOCABULARY),
    ),
    "Eagle3Qwen3ForCausalLM": (
        "Qwen3ForCausalLM",
        "eagle3",
        _draft("Qwen3ForCausalLM", "qwen3", draft_vocab_size=VOCABULARY),
    ),
    "DFlashDraftModel": (
        "Qwen3ForCausalLM",
        "dflash",
        _draft("DFlashDraftModel", "qwen3", **_DFLASH),
    ),
}


class _Own(PreTrainedConfig):
    """Of a class whose configuration lies with its checkpoint."""


@functools.cache
def _model_types() -> dict[str, str]:
    """The model type of each architecture that `_SERVES` or Transformers knows."""
    found = {name: kind for kind, names in _SERVES.items() for name in names.split()}
    for name, mapping in vars(modeling_auto).items():
        if name.endswith("_MAPPING_NAMES"):
            for model_type, classes in mapping.items():
                for one in [classes] if isinstance(classes, str) else classes:
                    found.setdefault(one, model_type)
    return found


class Instance(NamedTuple):
    """What a small model is built from: its config.json; of a draft its target's, the method, and
    its own config.json where it is not the target's."""

    hf_config: dict[str, Any]
    method: str = ""
    draft: dict[str, Any] | None = None


def instance(architectures: Sequence[str]) -> Instance:
    """Of a class, by its architectures: the first that has a configuration stands for it.

    Raises:
        LookupError: None has one.
    """
    architecture = next(filter(_configured, architectures), architectures[0])
    if architecture in DRAFTS:
        target, method, draft = DRAFTS[architecture]
        config = _config_json(target)
        return Instance(config if draft else _with_mtp(config), method, draft)
    return Instance(_config_json(architecture))


def _with_mtp(config: dict[str, Any]) -> dict[str, Any]:
    """`config`, also of its language model, with a layer for multi-token prediction."""
    found = {**config, "num_nextn_predict_layers": config.get("num_nextn_predict_layers") or 1}
    for key in ("rope_theta", "partial_rotary_factors"):
        if isinstance(by_layer := config.get(key), list):
            found[key] = [*by_layer, by_layer[0]]
    if config.get("model_type") == "step3p5":
        # Its list goes on over these layers, which have a window.
        found["layer_types"] = [*config["layer_types"], "sliding_attention"]
    if isinstance(part := config.get("text_config"), dict):
        found["text_config"] = _with_mtp(part)
    return found


def _configured(architecture: str) -> bool:
    return (
        architecture in _WHOLE_MODELS
        or architecture in CHANGES
        or architecture in DRAFTS
        or architecture in _model_types()
    )


def _config_json(architecture: str) -> dict[str, Any]:
    if architecture in _WHOLE_MODELS:
        return dict(_WHOLE_MODELS[architecture])
    model_type, changes = CHANGES.get(architecture, ("", {}))
    model_type = model_type or _model_types().get(architecture, "")
    if not model_type:
        raise LookupError(f"no configuration class for {architecture}")
    if model_type in _CONFIG_REGISTRY:
        base = small(_CONFIG_REGISTRY[model_type]())
    elif model_type in CONFIG_MAPPING and not issubclass(CONFIG_MAPPING[model_type], _Own):
        base = small(CONFIG_MAPPING[model_type]())
    else:
        own = type("OwnConfig", (_Own,), {"model_type": model_type})
        AutoConfig.register(model_type, own, exist_ok=True)
        base = _LLAMA
    found = changed(base, changes)
    if architecture not in _PLAIN_POSITIONS and supports_mrope(
        ModelRegistry._try_load_model_cls(architecture)
    ):
        give_mrope_sections(found)
    return {**found, "architectures": [architecture], "model_type": model_type}
