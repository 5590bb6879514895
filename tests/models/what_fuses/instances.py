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

from what_fuses.shrink import VOCABULARY, changed, give_mrope_sections, small

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
    "v_head_dim": 64,
    "swa_head_dim": 64,
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
            "window_sizes": [None],
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
            **dict.fromkeys(("mla_scale_q_lora", "mla_scale_kv_lora"), True),
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
    "Glm5NextForCausalLM": ("glm5_next_text", {"mhc": False, "mla_use_nope": False}),
    # Changes to the defaults.
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
# By architecture: what tests of whole models have.
_WHOLE_MODELS = {
    model.hf_config["architectures"][0]: model.hf_config
    for model in (MODELS[name] for name in ("gemma3n", "gemma4", "glm4.5", "step3.5"))
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
    "EagleCohereForCausalLM": ("CohereForCausalLM", "eagle", _draft("CohereForCausalLM", "cohere")),
    "EagleLlamaForCausalLM": ("LlamaForCausalLM", "eagle", _draft("LlamaForCausalLM", "llama")),
    "EagleMiniCPMForCausalLM": (
        "LlamaForCausalLM",
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
        return Instance(_config_json(target), method, draft)
    return Instance(_config_json(architecture))


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
    if supports_mrope(ModelRegistry._try_load_model_cls(architecture)):
        give_mrope_sections(found)
    return {**found, "architectures": [architecture], "model_type": model_type}
