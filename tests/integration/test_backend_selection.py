"""Which class ROCM_ATTN is and what it can do, by architecture."""

import functools
import inspect
from typing import Any

import pytest
from simulation import simulated

OTHER_GPUS = ["gfx1100", "gfx942"]
FORMER_PATH = {"VLLM_ROCM_USE_GFX1151_ATTN": "0"}


@functools.cache
def _config(backend: str | None) -> Any:
    from simulation.models import vllm_config
    from vllm.config import AttentionConfig

    return vllm_config(attention_config=AttentionConfig(backend=backend))


def _select(backend: str | None = None, head_size: int = 128, **wanted: Any) -> str:
    """The class that vLLM chooses for an attention layer, by vLLM's own selector."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.v1.attention.selector import get_attn_backend

    with set_current_vllm_config(_config(backend)):
        return get_attn_backend(head_size, torch.bfloat16, "auto", **wanted).__name__


def _capabilities(backend: Any) -> dict[str, Any]:
    """What a backend class answers to every question about its capabilities."""
    import torch
    from vllm.platforms.interface import DeviceCapability
    from vllm.v1.attention.backend import AttentionType

    answers: dict[str, Any] = {}
    for name in dir(backend):
        if name.startswith(("supports_", "is_")):
            answer = getattr(backend, name)
            if not callable(answer):
                answers[name] = answer
            elif not inspect.signature(answer).parameters:
                answers[name] = answer()
    for size in (1, 16, 31, 32, 64, 80, 96, 100, 128, 192, 256, 512):
        answers[f"head size {size}"] = backend.supports_head_size(size)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        answers[str(dtype)] = backend.supports_dtype(dtype)
    for kv_dtype in ("auto", "bfloat16", "fp8", "fp8_e5m2", "int8_per_token_head", "nvfp4"):
        answers[f"KV cache of {kv_dtype}"] = backend.supports_kv_cache_dtype(kv_dtype)
    for block in (None, 1, 16, 24, 544, 1056):
        answers[f"block size {block}"] = backend.supports_block_size(block)
    for kind in AttentionType:
        answers[f"attention of {kind}"] = backend.supports_attn_type(kind)
    answers["compute capability"] = backend.supports_compute_capability(DeviceCapability(11, 5))
    answers["kernel block sizes"] = repr(backend.get_supported_kernel_block_sizes())
    answers["builder"] = backend.get_builder_cls().__name__
    answers["cache update in forward"] = backend.forward_includes_kv_cache_update
    return answers


@simulated(op=False)
def rocm_attn() -> dict[str, Any]:
    """ROCM_ATTN's class and everything that can be asked of it."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    backend = AttentionBackendEnum.ROCM_ATTN.get_class()
    layouts = backend.supported_kv_cache_layouts()
    return {
        **_capabilities(backend),
        "class": backend.__name__,
        "path": AttentionBackendEnum.ROCM_ATTN.get_path(),
        "name": backend.get_name(),
        "impl": backend.get_impl_cls().__name__,
        "layouts": [layout.name for layout in layouts],
    }


@functools.cache
def choices(**machine: Any) -> dict[str, str]:
    """The class chosen for many kinds of layers on a machine, or why none is."""
    return _choices.on(**machine)


@simulated(op=False)
def _choices() -> dict[str, str]:
    from vllm.v1.attention.backend import AttentionType

    kinds: dict[str, dict[str, Any]] = {
        "plain": {},
        "window": {"has_sliding_window": True},
        "mm prefix": {"use_mm_prefix": True},
        "sink": {"has_sink": True},
        "MLA": {"use_mla": True},
        **{kind.value: {"attn_type": kind} for kind in AttentionType},
    }
    found = {}
    for backend in (None, "ROCM_ATTN", "TRITON_ATTN", "ROCM_AITER_UNIFIED_ATTN"):
        for size in (64, 96, 128, 256, 512):
            for kind, wanted in kinds.items():
                try:
                    chosen = _select(backend, size, **wanted)
                except ValueError as refusal:
                    chosen = str(refusal)
                found[f"{backend}, head size {size}, {kind}"] = chosen
    return found


def test_gfx1151_has_a_class_of_its_own() -> None:
    found = rocm_attn()
    assert found["class"] == "RocmGfx1151AttentionBackend"
    assert found["impl"] == "RocmGfx1151AttentionImpl"
    assert found["name"] == "ROCM_ATTN"


@simulated(op=False)
def test_it_can_do_what_triton_can_except_kv_connectors() -> None:
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    ours = _capabilities(AttentionBackendEnum.ROCM_ATTN.get_class())
    triton = _capabilities(AttentionBackendEnum.TRITON_ATTN.get_class())
    different = {name for name in ours.keys() | triton.keys() if ours.get(name) != triton.get(name)}
    assert different == {"supports_kv_connector"}
    assert ours["supports_kv_connector"] is False
    assert ours["supports_mm_prefix"] and ours["supports_sink"] and ours["supports_rswa"]


def test_it_prefers_one_heads_keys_together_and_takes_every_layout() -> None:
    found = rocm_attn()["layouts"]
    assert found[0] == "LBHNC"
    assert sorted(found) == sorted(_layouts())


@simulated(op=False)
def _layouts() -> list[str]:
    from vllm.v1.kv_cache_interface import KVCacheLayout

    return [layout.name for layout in KVCacheLayout]


@simulated(op=False)
def test_a_pages_layout_is_hnd_unless_another_backend_needs_nhd() -> None:
    from vllm.v1.attention.backends.registry import AttentionBackendEnum as Backends
    from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts

    ours, triton = Backends.ROCM_ATTN.get_class(), Backends.TRITON_ATTN.get_class()
    flex = Backends.FLEX_ATTENTION.get_class()
    assert get_supported_kv_cache_layouts([ours])[0].name == "LBHNC"
    assert get_supported_kv_cache_layouts([ours, triton])[0].name == "LBHNC"
    assert [x.name for x in get_supported_kv_cache_layouts([ours, flex])] == ["LBNHC"]


@simulated(op=False)
def test_the_cache_is_tritons_packed_one() -> None:
    import torch
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    spec = FullAttentionSpec(
        block_size=16, num_kv_heads=3, head_size=128, head_size_v=128, dtype=torch.bfloat16
    )
    assert AttentionBackendEnum.ROCM_ATTN.get_class().customize_spec(spec) == spec


@pytest.mark.parametrize("head_size", [64, 96, 128, 256, 512])
@pytest.mark.parametrize("kind", ["plain", "window", "mm prefix", "sink"])
def test_gfx1151_chooses_it_for_every_kind_of_decoder_layer(head_size: int, kind: str) -> None:
    for backend in (None, "ROCM_ATTN"):
        assert (
            choices()[f"{backend}, head size {head_size}, {kind}"] == "RocmGfx1151AttentionBackend"
        )


@pytest.mark.parametrize(
    "case", ["head size 128, mm prefix", "head size 128, sink", "head size 512, plain"]
)
def test_upstream_refuses_on_gfx1151_what_goes_to_triton(case: str) -> None:
    upstream = choices(tree="pristine", op=False)
    assert upstream[f"None, {case}"] == "TritonAttentionBackend"
    assert "is not valid for this configuration" in upstream[f"ROCM_ATTN, {case}"]


@pytest.mark.parametrize("arch", OTHER_GPUS)
def test_other_gpus_are_as_upstream(arch: str) -> None:
    assert rocm_attn.on(arch=arch) == rocm_attn.on(arch=arch, tree="pristine", op=False)
    assert choices(arch=arch) == choices(arch=arch, tree="pristine", op=False)


def test_the_setting_brings_the_former_path_back() -> None:
    former = tuple(FORMER_PATH.items())
    upstream = {"tree": "pristine"}
    assert rocm_attn.on(env=former) == rocm_attn.on(**upstream)
    assert choices(env=former) == choices(**upstream)


@simulated(op=False)
def test_other_backends_are_chosen_as_upstream_on_gfx1151() -> None:
    assert _select("TRITON_ATTN") == "TritonAttentionBackend"
    assert _select(use_mla=True, head_size=576) == "TritonMLABackend"


@simulated(op=False)
def test_a_run_with_a_kv_connector_does_not_get_it() -> None:
    import torch
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    from vllm.v1.attention.selector import AttentionSelectorConfig

    config = AttentionSelectorConfig(128, torch.bfloat16, "auto", None, use_kv_connector=True)
    assert current_platform.get_attn_backend_cls(None, config).endswith("TritonAttentionBackend")
    with pytest.raises(ValueError, match="KV connector not supported"):
        current_platform.get_attn_backend_cls(AttentionBackendEnum.ROCM_ATTN, config)
