"""The matrix of defaults: what the series changes of the configuration, and all that it does not.

Every combination is resolved on the patched and on the pristine tree, with an AITER installed that
only gfx942 can import, and compared setting by setting.
"""

import functools
import itertools
from typing import Any

import pytest
from simulation import simulated

ROPE, QK_NORM = "fuse_rope_kvcache", "fuse_qk_norm_rope_kvcache"
UPDATE = "vllm::unified_kv_cache_update"
PASSES, COMPILATION = "compilation_config.pass_config", "compilation_config"

LEVELS = (0, 1, 2, 3)
BACKENDS = (None, "ROCM_ATTN", "TRITON_ATTN", "ROCM_AITER_UNIFIED_ATTN", "ROCM_AITER_FA")
# dtypes of activations and KV cache
DTYPES = (
    ("bfloat16", "auto"),
    ("bfloat16", "bfloat16"),
    ("float16", "auto"),
    ("float32", "auto"),
    ("bfloat16", "fp8"),
    ("float16", "int8_per_token_head"),
)
USERS: dict[str, dict[str, Any]] = {
    "sets nothing": {},
    "turns RoPE's off": {"passes": {ROPE: False}},
    "turns QK norm's off": {"passes": {QK_NORM: False}},
    "turns both off": {"passes": {ROPE: False, QK_NORM: False}},
    "sets -rotary_embedding": {"custom_ops": ["-rotary_embedding"]},
    "sets +rotary_embedding": {"custom_ops": ["+rotary_embedding"]},
    "wants all custom ops": {"custom_ops": ["all"]},
    "splits nowhere": {"splitting_ops": []},
    "splits at attention": {"splitting_ops": ["vllm::unified_attention_with_output"]},
    "splits at the update": {"splitting_ops": ["vllm::unified_attention_with_output", UPDATE]},
    "partitions in Inductor": {"use_inductor_graph_partition": True},
    "does not compile": {"model": {"enforce_eager": True}},
}
# Settings with which no fusion can be matched, or none is left to turn on.
IN_THE_WAY = (
    "turns both off",
    "sets -rotary_embedding",
    "splits at the update",
    "does not compile",
)
ON_BY_DEFAULT = {
    "turns RoPE's off": [QK_NORM],
    "turns QK norm's off": [ROPE],
}

# Level, backend, dtypes, what the user sets, VLLM_ROCM_USE_AITER. A level that is like another
# (0 and 1, 2 and 3) and AITER's second backend are combined with no user's settings.
Case = tuple[int, str | None, tuple[str, str], str, bool]
CASES: list[Case] = [
    *itertools.product(LEVELS, BACKENDS, DTYPES, ["sets nothing"], [False, True]),
    *itertools.product([1, 2], BACKENDS[:-1], DTYPES[2:5], list(USERS)[1:], [False]),
]


@functools.cache
def _resolved(**machine: Any) -> dict[Case, dict[str, str]]:
    """Every setting of every case on a machine."""
    base, changes = _configurations.on(**machine)
    return {case: {**base, **changed} for case, changed in changes.items()}


@simulated(aiter=True)
def _configurations() -> tuple[dict[str, str], dict[Case, dict[str, str]]]:
    """The first case's settings, and of each case those that differ."""
    from simulation.configurations import resolved
    from vllm._aiter_ops import rocm_aiter_ops

    first: dict[str, str] = {}
    changes = {}
    for case in CASES:
        level, backend, (dtype, cache_dtype), user, aiter = case
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("VLLM_ROCM_USE_AITER", str(int(aiter)))
            rocm_aiter_ops.refresh_env_variables()
            found = resolved(
                level=level, backend=backend, dtype=dtype, cache_dtype=cache_dtype, **USERS[user]
            )
        first = first or found
        changes[case] = {path: text for path, text in found.items() if first.get(path) != text}
    return first, changes


def _is_fused(case: Case) -> bool:
    """Whether gfx1151 with the op fuses by default: the design, case by case."""
    level, backend, (dtype, cache_dtype), user, _ = case
    return (
        level >= 2
        and backend in (None, "ROCM_ATTN")
        and dtype in ("bfloat16", "float16")
        and cache_dtype in ("auto", dtype)
        and user not in IN_THE_WAY
    )


def _differences(
    here: dict[Case, dict[str, str]], there: dict[Case, dict[str, str]], cases: list[Case]
) -> list[str]:
    """`case: path: text here, text there` of the settings that differ."""
    assert cases
    return [
        f"{case}: {path}: {here[case].get(path)} instead of {there[case].get(path)}"
        for case in cases
        for path in sorted(here[case].keys() | there[case].keys())
        if here[case].get(path) != there[case].get(path)
    ]


def test_aiter_counts_on_gfx942_alone() -> None:
    """The switch and the stand-in do what they are in the matrix for."""
    found = {}
    for arch in ("gfx942", "gfx1100", "gfx1151"):
        case = 2, None, DTYPES[0], "sets nothing", True
        there = _resolved(arch=arch, tree="pristine", op=False)[case]
        found[arch] = "+quant_fp8" in there[f"{COMPILATION}.custom_ops"]
    assert found == {"gfx942": True, "gfx1100": False, "gfx1151": False}


@pytest.mark.parametrize("arch", ["gfx1100", "gfx942"])
def test_other_gpus_are_configured_as_upstream(arch: str) -> None:
    here, there = _resolved(arch=arch, op=False), _resolved(arch=arch, tree="pristine", op=False)
    assert _differences(here, there, CASES) == []


def test_without_the_op_gfx1151_is_configured_as_upstream() -> None:
    here, there = _resolved(op=False), _resolved(tree="pristine", op=False)
    assert _differences(here, there, CASES) == []


def test_what_cannot_be_fused_is_configured_as_upstream() -> None:
    here, there = _resolved(), _resolved(tree="pristine", op=False)
    assert _differences(here, there, [case for case in CASES if not _is_fused(case)]) == []


def test_where_it_fuses_only_what_the_fusions_need_differs() -> None:
    here, there = _resolved(), dict(_resolved(tree="pristine", op=False))
    cases = [case for case in CASES if _is_fused(case)]
    for case in cases:
        there[case] = _with_fusions(there[case], case)
    assert _differences(here, there, cases) == []


def _with_fusions(upstream: dict[str, str], case: Case) -> dict[str, str]:
    """What a configuration of upstream's must become where the fusions are on."""
    user = case[3]
    flags = ON_BY_DEFAULT.get(user, [ROPE, QK_NORM])
    expected = {**upstream, **{f"{PASSES}.{flag}": "True" for flag in flags}}
    if "+rotary_embedding" not in upstream[f"{COMPILATION}.custom_ops"]:
        ops = upstream[f"{COMPILATION}.custom_ops"].removeprefix("[")
        # The platform adds its own ops behind what the user has set.
        own = "'all', " if user == "wants all custom ops" else ""
        ops = ops.removeprefix(own)
        expected[f"{COMPILATION}.custom_ops"] = f"[{own}'+rotary_embedding', {ops}"
    if "splitting_ops" not in USERS[user]:
        splits = upstream[f"{COMPILATION}.splitting_ops"].replace(f"'{UPDATE}', ", "")
        expected[f"{COMPILATION}.splitting_ops"] = splits
    # More than a batch has here, so that no compile range ends there.
    expected[f"{PASSES}.rope_kvcache_fusion_max_token_num"] = "8192"
    return expected
