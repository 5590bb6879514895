"""A draft model's configuration shares the target's CompilationConfig and is resolved in its turn.

The drafts' configurations are made by vLLM's own proposers.
"""

import functools
from typing import Any

import pytest
from simulation import simulated
from simulation.hf_configs import DEEPSEEK, QWEN3

ROPE, QK_NORM = "fuse_rope_kvcache", "fuse_qk_norm_rope_kvcache"
COMPILATION, PASSES = "compilation_config", "compilation_config.pass_config"
UPDATE = "vllm::unified_kv_cache_update"

TARGETS: dict[str, dict[str, Any]] = {
    "fused by default": {},
    "fused by default at -O3": {"level": 3},
    "fused on request": {"passes": {ROPE: True, QK_NORM: True}},
    "fused on request at -O1": {"level": 1, "passes": {QK_NORM: True}},
    "off by request": {"passes": {ROPE: False, QK_NORM: False}},
    "of another backend": {"backend": "TRITON_ATTN"},
    "with an fp8 cache": {"cache_dtype": "fp8"},
    "at -O1": {"level": 1},
}
FUSED = {
    "fused by default": [ROPE, QK_NORM],
    "fused by default at -O3": [ROPE, QK_NORM],
    "fused on request": [ROPE, QK_NORM],
    "fused on request at -O1": [QK_NORM],
}
DRAFTS = [
    "EAGLE, auto",
    "EAGLE, TRITON_ATTN",
    "EAGLE, ROCM_ATTN",
    "draft model, auto",
    "draft model, TRITON_ATTN",
    "draft model of head size 80",
    "draft model with MLA",
    "draft model in fp32",
    "draft of a draft",
    "unpickled, TRITON_ATTN",
    "deep copy, TRITON_ATTN",
]


@functools.cache
def _found() -> dict[tuple[str, str], tuple[dict[str, str], dict[str, str]]]:
    return _drafts()


@simulated()
def _drafts() -> dict[tuple[str, str], tuple[dict[str, str], dict[str, str]]]:
    """By target and draft: the target's settings before, the draft's after."""
    from simulation.configurations import configure, settings

    found = {}
    for target, asked in TARGETS.items():
        for draft in DRAFTS:
            config = configure(**asked)
            before = settings(config)
            found[target, draft] = before, settings(_draft_of(config, draft))
    return found


def _draft_of(config: Any, draft: str) -> Any:
    import copy
    import pickle
    from types import SimpleNamespace

    from simulation.models import model_config
    from vllm.config import replace
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    from vllm.v1.spec_decode.draft_model import DraftModelProposer
    from vllm.v1.spec_decode.eagle import EagleProposer

    if draft == "draft of a draft":
        return _draft_of(_draft_of(config, "EAGLE, TRITON_ATTN"), "draft model, auto")
    if draft.startswith("unpickled"):
        config = pickle.loads(pickle.dumps(config))
    if draft.startswith("deep copy"):
        config = copy.deepcopy(config)
    backend = next((b for b in AttentionBackendEnum if draft.endswith(f", {b.name}")), None)
    speculation = SimpleNamespace(
        attention_backend=backend, moe_backend=None, kv_cache_dtype=None,
        draft_parallel_config=replace(config.parallel_config),
    )  # fmt: skip
    proposer = object.__new__(
        DraftModelProposer if draft.startswith("draft model") else EagleProposer
    )
    if draft.startswith("draft model"):
        hf_config, dtype = QWEN3, "bfloat16"
        if draft.endswith("80"):
            hf_config = {**QWEN3, "head_dim": 80}
        if draft.endswith("MLA"):
            hf_config = DEEPSEEK
        if draft.endswith("fp32"):
            dtype = "float32"
        speculation.draft_model_config = model_config(hf_config, dtype=dtype)
    proposer.vllm_config, proposer.speculative_config = config, speculation
    return proposer._create_draft_vllm_config()


def _fused(settings: dict[str, str]) -> list[str]:
    return [name for name in (ROPE, QK_NORM) if settings[f"{PASSES}.{name}"] == "True"]


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_draft_changes_nothing_of_the_fusions(target: str, draft: str) -> None:
    before, after = _found()[target, draft]
    assert _fused(before) == FUSED.get(target, [])
    kept = [path for path in before if path.startswith(f"{PASSES}.")]
    kept += [f"{COMPILATION}.splitting_ops", f"{COMPILATION}.mode"]
    for path in kept:
        # A flag that no level decided is decided by the draft's: off.
        assert after[path] == before[path] or (before[path], after[path]) == ("None", "False"), path
    assert _ops(after) == _ops(before)
    assert _endpoints(after) == _endpoints(before)


def _ops(settings: dict[str, str]) -> list[str]:
    """The custom ops, each once: upstream's platform adds one of them at every resolution."""
    return sorted(set(settings[f"{COMPILATION}.custom_ops"].strip("[]").split(", ")))


def _endpoints(settings: dict[str, str]) -> set[str]:
    return set(settings[f"{COMPILATION}.compile_ranges_endpoints"].strip("[]").split(", "))


@pytest.mark.parametrize("draft", ["EAGLE, TRITON_ATTN", "draft model, TRITON_ATTN"])
def test_a_draft_keeps_its_own_backend(draft: str) -> None:
    before, after = _found()["fused by default", draft]
    assert before["attention_config.backend"] == "None"
    assert after["attention_config.backend"].endswith("TRITON_ATTN")


@simulated()
def test_a_target_resolved_after_its_draft_is_as_before() -> None:
    """A draft does not leave marks that the next model's own CompilationConfig could have."""
    from simulation.configurations import configure, settings

    first = settings(configure())
    _draft_of(configure(), "draft model in fp32")
    assert settings(configure()) == first
