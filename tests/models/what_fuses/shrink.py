"""Small configurations of real model classes, from what Transformers or vLLM knows of each.

A configuration class's defaults are a model of the family. `small` keeps what decides what a
layer's prologue is (head size, norms, rotation, kinds of layers) and makes the rest small. Imported
on the machine.
"""

import copy
from typing import Any

from transformers import PreTrainedConfig

_HEAD_SIZES = (64, 96, 128, 256, 512)  # the kernel's
HEADS, KV_HEADS, VOCABULARY = 4, 2, 512
ABSENT = object()  # as a change: the key goes

# By every name that a family has for it. Only keys that the configuration has are set.
_SIZES: dict[str, Any] = {
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), HEADS),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "d_ff", "ffn_hidden_size"), 256),
    **dict.fromkeys(
        ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size_mlp"), 64
    ),
    **dict.fromkeys(("shared_expert_intermediate_size", "shared_intermediate_size"), 64),
    **dict.fromkeys(("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts"), 2),
    **dict.fromkeys(("n_group", "topk_group", "num_expert_group"), 1),
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input", "padded_vocab_size"), VOCABULARY),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_sequence_length"), 4096),
}
_KV = ("num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HIDDEN = ("hidden_size", "n_embd", "d_model")


def small(config: PreTrainedConfig) -> dict[str, Any]:
    """A config.json like `config`, with its sub-configurations, of a few small layers."""
    found = config.to_dict()
    for key in list(found):
        if not isinstance(found[key], dict):
            continue
        part = getattr(config, key, None)
        if isinstance(part, PreTrainedConfig):
            found[key] = _tower(part) if _is_tower(key) else small(part)
    _shrink(found)
    return found


def _is_tower(key: str) -> bool:
    return any(word in key for word in ("vision", "audio", "image", "encoder_config", "vit"))


def _tower(config: PreTrainedConfig) -> dict[str, Any]:
    """An encoder of images or sound: as it is, of one layer."""
    found = config.to_dict()
    for key in ("num_hidden_layers", "depth", "num_layers", "encoder_layers", "n_layers"):
        if isinstance(layers := found.get(key), int):
            found[key] = 1
            if len(found.get("layer_types") or ()) == layers:
                found["layer_types"] = found["layer_types"][:1]
    return found


def _shrink(found: dict[str, Any]) -> None:
    heads = next(
        (found[k] for k in ("num_attention_heads", "n_head", "n_heads") if found.get(k)), 0
    )
    hidden = next((k for k in _HIDDEN if isinstance(found.get(k), int)), None)
    if not isinstance(heads, int) or not heads or hidden is None:
        return
    head_size = found.get("head_dim") or found[hidden] // heads
    if head_size not in _HEAD_SIZES:
        head_size = _HEAD_SIZES[0]
        if found.get("head_dim"):
            found["head_dim"] = head_size
    grouped = any(found.get(k) not in (None, heads) for k in _KV)
    for key, value in _SIZES.items():
        if found.get(key) is not None and not isinstance(found[key], list | dict):
            found[key] = value
    for key in _KV:
        if found.get(key) is not None:
            found[key] = KV_HEADS if grouped else HEADS
    found[hidden] = HEADS * head_size
    for key, value in found.items():
        if key.endswith("token_id") and isinstance(value, int) and value >= VOCABULARY:
            found[key] = VOCABULARY - 1
    for key in ("eos_token_id", "bos_token_id"):
        if isinstance(found.get(key), list):
            found[key] = 0
    _take_layers(found)


def _take_layers(found: dict[str, Any]) -> None:
    """The first layer, and the first of each kind that `layer_types` names."""
    count = next((k for k in _LAYERS if isinstance(found.get(k), int)), None)
    if count is None:
        return
    layers = found[count]
    kinds = found.get("layer_types") or found.get("layers_block_type") or []
    chosen = sorted({0, *(kinds.index(kind) for kind in kinds)})
    for key, value in found.items():
        if isinstance(value, list) and len(value) == layers:
            found[key] = [value[i] for i in chosen]
    for key in _LAYERS:
        if isinstance(found.get(key), int):
            found[key] = len(chosen)
    if own := found.get("per_layer_config"):
        by_layer = {int(layer): part for layer, part in own.items()}
        found["per_layer_config"] = {
            number: by_layer[layer] for number, layer in enumerate(chosen) if layer in by_layer
        }


def give_mrope_sections(config: dict[str, Any]) -> None:
    """Add M-RoPE's sections, which checkpoints have and configuration classes may not.

    Without them vLLM rotates by positions `[T]`, as no model of the family does.
    """
    for key, part in config.items():
        if isinstance(part, dict) and not _is_tower(key):
            give_mrope_sections(part)
    rope, heads = config.get("rope_parameters"), config.get("num_attention_heads")
    if not isinstance(rope, dict) or not heads:
        return
    head_size = config.get("head_dim") or config["hidden_size"] // heads
    # Of all layers, or of each kind of layer.
    for part in [part for part in rope.values() if isinstance(part, dict)] or [rope]:
        if "mrope_section" not in part:
            pairs = int(head_size * part.get("partial_rotary_factor", 1.0)) // 2
            side = 3 * pairs // 8
            part["mrope_section"] = [pairs - 2 * side, side, side]


def changed(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`config` with `changes`, whose dictionaries change those of the same name."""
    found = copy.deepcopy(config)
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(found.get(key), dict):
            found[key] = changed(found[key], value)
        elif value is ABSENT:
            found.pop(key, None)
        else:
            found[key] = (
                {k: v for k, v in value.items() if v is not ABSENT}
                if isinstance(value, dict)
                else value
            )
    return found
