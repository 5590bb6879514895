"""Looks at architectures on simulated machines, and keeps going when one of them dies."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import simulation
from simulation import simulated

from what_fuses.found import Found

# A compiled model must not come from a cache.
_ENVIRONMENT = {"VLLM_USE_AOT_COMPILE": "0", "VLLM_DISABLE_COMPILE_CACHE": "1"}
_AT_ONCE = 12  # architectures in one process, which grows


def classes() -> dict[str, list[str]]:
    """By model class, as `module:class`: the architectures of the registry that it serves."""
    return _classes()


def look_at(architectures: Sequence[str]) -> Iterator[tuple[str, Found]]:
    """What became of small models of architectures, one after another."""
    for first in range(0, len(architectures), _AT_ONCE):
        some = list(architectures[first : first + _AT_ONCE])
        try:
            yield from _looks.alone(names=some).items()
        except (RuntimeError, pytest.fail.Exception):
            # One of them ended the process: each gets its own.
            for name in some:
                yield name, _alone(_looks.alone, name)


def _alone(looks: Callable[..., dict[str, Found]], name: str) -> Found:
    try:
        return looks(names=[name])[name]
    except (RuntimeError, pytest.fail.Exception) as failed:
        return Found(error=f"its process: {str(failed).splitlines()[0]}")


@simulated()
def _classes() -> dict[str, list[str]]:
    from vllm.model_executor.models.registry import ModelRegistry

    found: dict[str, list[str]] = {}
    for architecture, model in ModelRegistry.models.items():
        module = model.module_name.removeprefix("vllm.model_executor.models.")
        found.setdefault(f"{module}:{model.class_name}", []).append(architecture)
    return found


@simulated(env=_ENVIRONMENT)
def _looks(names: list[str]) -> dict[str, Found]:
    import sys

    sys.path.append(str(Path(simulation.__file__).parent / "flash_attn_stand_in"))
    from what_fuses.look import look

    found = {}
    for name in names:
        try:
            found[name] = look(name)
        except Exception as error:
            found[name] = Found(error=_words(error))
    return found


def _words(error: BaseException) -> str:
    """The error that the others were raised from, in a line."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300]
