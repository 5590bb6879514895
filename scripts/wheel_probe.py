"""Runs inside an environment that a wheel was installed into.

    python -I wheel_probe.py <site-packages> <module>...

Imports vLLM and the modules, loads the op and calls it on small CPU tensors whose results are
exact. Prints `problem: <what>` for each thing that fails, and ends with 1 if any did. It stands
alone: nothing of this repository is on the path there.
"""

import importlib
import sys
from pathlib import Path

WRAPPER = "vllm.v1.attention.ops.rdna35_rope_cache"


def import_problems(site_packages: Path, modules: list[str]) -> list[str]:
    """Modules that do not import, or come from elsewhere than the environment."""
    problems = []
    for module in ["vllm", *modules]:
        try:
            file = importlib.import_module(module).__file__
        except Exception as error:
            problems.append(f"import {module}: {type(error).__name__}: {_one_line(error)}")
            continue
        if file is None or site_packages not in Path(file).parents:
            problems.append(f"import {module}: comes from {file}")
    return problems


def op_problems() -> list[str]:
    """Loads the op through vLLM's wrapper and compares one call with what it must be."""
    try:
        reason = importlib.import_module(WRAPPER).unavailable_reason()
        return [f"the op is not available: {reason}"] if reason else _call_problems()
    except Exception as error:
        return [f"the op: {type(error).__name__}: {_one_line(error)}"]


def _call_problems() -> list[str]:
    import torch

    tokens, num_heads, num_kv_heads, head_dim, block_size = 3, 2, 1, 64, 4
    half = head_dim // 2
    generator = torch.Generator().manual_seed(1151)

    def heads(count: int) -> torch.Tensor:
        return torch.randn(tokens, count, head_dim, generator=generator).to(torch.bfloat16)

    q, k, v = heads(num_heads), heads(num_kv_heads), heads(num_kv_heads)
    # No turn, a quarter turn and a half turn, whose results need no rounding.
    cos = torch.tensor([1.0, 0.0, -1.0]).repeat_interleave(half).view(3, half)
    sin = torch.tensor([0.0, 1.0, 0.0]).repeat_interleave(half).view(3, half)
    turns = [2, 0, 1]
    slots = [5, -1, 2]

    def turned(x: torch.Tensor) -> torch.Tensor:
        rows = []
        for row, turn in zip(x, turns, strict=True):
            quarter = torch.cat((-row[:, half:], row[:, :half]), dim=-1)
            rows.append([row, quarter, -row][turn])
        return torch.stack(rows)

    cache = torch.full((2, num_kv_heads, block_size, 2 * head_dim), 7.0, dtype=torch.bfloat16)
    expected_q, expected_k, expected_cache = turned(q), turned(k), cache.clone()
    for token, slot in enumerate(slots):
        if slot >= 0:
            row = torch.cat((expected_k[token], v[token]), dim=-1)
            expected_cache[slot // block_size, :, slot % block_size] = row
    torch.ops._rocm_C.rdna35_rope_cache(
        torch.tensor(turns),
        q,
        k,
        v,
        torch.cat((cos, sin), dim=-1).to(torch.bfloat16),
        None,
        None,
        False,
        1e-6,
        0,
        0.0,
        1,
        cache,
        torch.tensor(slots),
        None,
        None,
        None,
    )
    results = {"q": (q, expected_q), "k": (k, expected_k), "kv_cache": (cache, expected_cache)}
    return [
        f"the op: {name} is not what it must be"
        for name, (got, expected) in results.items()
        if not torch.equal(got, expected)
    ]


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def main() -> int:
    """Runs the checks; see the module."""
    site_packages = Path(sys.argv[1])
    problems = import_problems(site_packages, sys.argv[2:]) or op_problems()
    for problem in problems:
        print(f"problem: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
