"""Attention backends of models that choose or require one: on gfx1151 ROCM_ATTN serves them too."""

import functools
from typing import Any

import pytest
from simulation import simulated
from simulation.hf_configs import GEMMA4, QWEN3, WINDOWED

UPSTREAM = {"tree": "pristine", "op": False}
OURS = "RocmGfx1151AttentionBackend"
FLAGS = ("fuse_rope_kvcache", "fuse_qk_norm_rope_kvcache")

# PaliGemma 2: the image and the prompt's beginning attend in both directions.
PALIGEMMA2: dict[str, Any] = {
    "architectures": ["PaliGemmaForConditionalGeneration"],
    "model_type": "paligemma",
    "torch_dtype": "bfloat16",
    "hidden_size": 256,
    "text_config": {
        "model_type": "gemma2",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "sliding_window": 512,
        "layer_types": ["sliding_attention", "full_attention"],
        "vocab_size": 1024,
        "max_position_embeddings": 4096,
    },
    "vision_config": {
        "model_type": "siglip_vision_model",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    },
}
MODELS = {
    "plain": QWEN3,
    "PaliGemma 2": PALIGEMMA2,
    "Gemma 4": GEMMA4,
    "head size 512": {**QWEN3, "head_dim": 512},
}


@functools.cache
def _of_models(**machine: Any) -> dict[str, dict[str, Any]]:
    return _models.on(**machine)


@simulated()
def _models() -> dict[str, dict[str, Any]]:
    """By model: its configuration's backend, each layer's, and the fusions that are on."""
    from simulation.configurations import configure

    found = {}
    for name, hf_config in MODELS.items():
        for chosen in (None, "ROCM_ATTN", "TRITON_ATTN"):
            config = configure(hf_config, backend=chosen)
            passes = config.compilation_config.pass_config
            backend = config.attention_config.backend
            found[f"{name}, {chosen}"] = {
                "backend": backend and backend.name,
                "layers": _layers(config),
                "fusions": [flag for flag in FLAGS if getattr(passes, flag)],
            }
    return found


def _layers(config: Any) -> list[str]:
    """The class that serves each layer of a model, or the words of its refusal."""
    from vllm.config import set_current_vllm_config
    from vllm.v1.attention.selector import get_attn_backend

    model = config.model_config
    served = []
    for i in range(model.model_arch_config.total_num_hidden_layers):
        try:
            with set_current_vllm_config(config):
                backend = get_attn_backend(
                    model.model_arch_config[i].head_size,
                    model.dtype,
                    config.cache_config.cache_dtype,
                    use_mm_prefix=model.is_mm_prefix_lm,
                )
        except ValueError as refusal:
            served.append(str(refusal))
        else:
            served.append(backend.__name__)
    return served


@pytest.mark.parametrize("chosen", [None, "ROCM_ATTN"])
@pytest.mark.parametrize("model", MODELS)
def test_rocm_attn_serves_and_fuses(model: str, chosen: str | None) -> None:
    found = _of_models()[f"{model}, {chosen}"]
    assert found == {"backend": chosen, "layers": [OURS, OURS], "fusions": [*FLAGS]}


@pytest.mark.parametrize("model", MODELS)
def test_a_users_triton_attn_is_kept(model: str) -> None:
    found = _of_models()[f"{model}, TRITON_ATTN"]
    assert found["backend"] == "TRITON_ATTN"
    assert found["layers"] == ["TritonAttentionBackend"] * 2
    assert found["fusions"] == []


@pytest.mark.parametrize("model", ["PaliGemma 2", "head size 512"])
def test_upstream_refuses_the_model_with_rocm_attn(model: str) -> None:
    there = _of_models(**UPSTREAM)
    assert there[f"{model}, None"]["layers"] == ["TritonAttentionBackend"] * 2
    for words in there[f"{model}, ROCM_ATTN"]["layers"]:
        assert "ROCM_ATTN is not valid for this configuration" in words


def test_upstream_selects_triton_attn_for_gemma4_as_if_the_user_had() -> None:
    there = _of_models(**UPSTREAM)
    assert there["Gemma 4, None"]["backend"] == "TRITON_ATTN"
    assert there["Gemma 4, None"] == there["Gemma 4, TRITON_ATTN"]


# Gemma 4's drafts.


@simulated()
def _gemma4_drafts() -> dict[str, tuple[str | None, list[str]]]:
    """By proposer and the user's choice: the draft's backend and its layers' classes."""
    from types import SimpleNamespace

    from simulation.configurations import configure
    from simulation.models import model_config
    from vllm.v1.spec_decode.gemma4 import Gemma4Proposer
    from vllm.v1.worker.gpu.spec_decode.gemma4.speculator import Gemma4Speculator

    found = {}
    for kind in (Gemma4Proposer, Gemma4Speculator):
        for chosen in (None, "TRITON_ATTN"):
            proposer = object.__new__(kind)
            proposer.vllm_config = configure(GEMMA4, backend=chosen)
            proposer.speculative_config = SimpleNamespace(
                attention_backend=None,
                moe_backend=None,
                kv_cache_dtype=None,
                draft_model_config=model_config(GEMMA4),
            )
            draft = proposer._create_draft_vllm_config()
            backend = draft.attention_config.backend
            found[f"{kind.__name__}, {chosen}"] = backend and backend.name, _layers(draft)
    return found


@pytest.mark.parametrize("proposer", ["Gemma4Proposer", "Gemma4Speculator"])
def test_gemma4s_draft_has_the_targets_backend(proposer: str) -> None:
    found = _gemma4_drafts()
    assert found[f"{proposer}, None"] == (None, [OURS, OURS])
    assert found[f"{proposer}, TRITON_ATTN"] == ("TRITON_ATTN", ["TritonAttentionBackend"] * 2)
    there = _gemma4_drafts.on(**UPSTREAM)
    assert there[f"{proposer}, None"] == ("TRITON_ATTN", ["TritonAttentionBackend"] * 2)


# Chunked attention with lookback, which only Triton's kernel does.


@simulated()
def _chunked() -> dict[str, str]:
    """By the user's choice: the layer's class and lookback, or the words of its refusal."""
    from simulation import layers
    from simulation.configurations import configure

    found = {}
    for chosen in (None, "ROCM_ATTN", "TRITON_ATTN", "FLEX_ATTENTION"):
        try:
            impl = layers.attention(
                configure(backend=chosen), 4, 2, 128, per_layer_sliding_window=64, chunk_lookback=1
            ).impl
            found[str(chosen)] = f"{type(impl).__name__}, {impl.chunk_lookback}"
        except AssertionError as refusal:
            found[str(chosen)] = str(refusal)
    return found


def test_chunked_attention_is_served() -> None:
    refusal = "Chunked attention with lookback requires the Triton backend, but got {}."
    common = {
        "TRITON_ATTN": "TritonAttentionImpl, 1",
        "FLEX_ATTENTION": refusal.format("FLEX_ATTENTION"),
    }
    ours = dict.fromkeys(("None", "ROCM_ATTN"), "RocmGfx1151AttentionImpl, 1")
    refused = {name: refusal.format("ROCM_ATTN") for name in ("None", "ROCM_ATTN")}
    assert _chunked() == {**common, **ours}
    for machine in (UPSTREAM, {"arch": "gfx1100"}):
        assert _chunked.on(**machine) == {**common, **refused}


# What the platform's selector is asked while the configuration is resolved.


@simulated()
def _questions() -> dict[str, tuple[list[str], list[str]]]:
    """By model: what the configuration asks the selector, and what the layers ask later."""
    from simulation import layers
    from simulation.configurations import configure
    from vllm.platforms import current_platform
    from vllm.v1.attention import selector

    asked: list[str] = []
    answer = current_platform.get_attn_backend_cls

    def asking(backend: Any, attn_selector_config: Any, num_heads: Any = None) -> Any:
        asked.append(str(attn_selector_config))
        return answer(backend, attn_selector_config=attn_selector_config, num_heads=num_heads)

    def questions() -> list[str]:
        found = sorted(asked)
        asked.clear()
        # What has been answered once is not asked again.
        selector._cached_get_attn_backend.cache_clear()
        return found

    found = {}
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(current_platform, "get_attn_backend_cls", asking)
        questions()
        for name, hf_config in {**MODELS, "windows": WINDOWED}.items():
            config = configure(hf_config)
            model, before = config.model_config, questions()
            types = getattr(model.hf_text_config, "layer_types", None) or ["", ""]
            for i, kind in enumerate(types):
                layers.attention(
                    config,
                    *(4, 2, model.model_arch_config[i].head_size),
                    name=f"model.layers.{i}.self_attn.attn",
                    per_layer_sliding_window=512
                    if "sliding" in kind or name == "windows"
                    else None,
                )
            found[name] = before, questions()
    return found


def test_the_selector_is_asked_what_the_layers_will_ask() -> None:
    for name, (before, later) in _questions().items():
        assert later, name
        # Where the configuration has a window and does not say for which layers, more is asked.
        assert set(later) < set(before) if name == "windows" else later == before, name


@simulated()
def _questions_upstream() -> list[str]:
    from simulation.configurations import configure
    from vllm.platforms import current_platform

    asked: list[str] = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(
            current_platform, "get_attn_backend_cls", lambda *a, **k: asked.append(str((a, k)))
        )
        configure()
    return asked


def test_upstream_chooses_backends_after_the_configuration() -> None:
    assert _questions_upstream.on(**UPSTREAM) == []


# Elsewhere.


@pytest.mark.parametrize(
    "machine",
    [{"op": False}, {"env": (("VLLM_ROCM_USE_GFX1151_ATTN", "0"),)}, {"arch": "gfx1100"}],
    ids=["no op", "switched off", "gfx1100"],
)
def test_elsewhere_gemma4_is_as_upstream(machine: dict[str, Any]) -> None:
    there = {**UPSTREAM, "arch": machine.get("arch", "gfx1151")}
    for chosen in (None, "TRITON_ATTN"):
        name = f"Gemma 4, {chosen}"
        assert _of_models(**machine)[name] == _of_models(**there)[name]
