"""Small models of many classes, on simulated machines; `what_fuses` says what became of them."""

import functools
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import simulation
from simulation import simulated
from what_fuses.found import Found

# A compiled model must not come from a cache.
_ENVIRONMENT = {"VLLM_USE_AOT_COMPILE": "0", "VLLM_DISABLE_COMPILE_CACHE": "1"}
_AT_ONCE = 2  # processes
_IN_ONE = 12  # classes in one of them, which grows


@functools.cache
def classes() -> dict[str, list[str]]:
    """By model class, as `module:class`: the architectures of the registry that it serves."""
    return _classes()


def digests(names: Sequence[str]) -> dict[str, str]:
    """By class: a name for what a small model of it is built from."""
    return _digests(asked={name: classes()[name] for name in names})


def look_at(names: Sequence[str]) -> Iterator[tuple[str, Found]]:
    """What became of small models of classes, named as `classes` does."""
    every = classes()
    parts = [
        {name: every[name] for name in names[first : first + _IN_ONE]}
        for first in range(0, len(names), _IN_ONE)
    ]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for found in pool.map(_part, parts):
            yield from found.items()


def _part(asked: dict[str, list[str]]) -> dict[str, Found]:
    try:
        return _looks.alone(asked=asked)
    except RuntimeError:
        # One of them ended the process: each gets its own.
        return {name: _by_itself(name, architectures) for name, architectures in asked.items()}


def _by_itself(name: str, architectures: list[str]) -> Found:
    try:
        return _looks.alone(asked={name: architectures})[name]
    except RuntimeError as ended:
        return Found(error=str(ended).splitlines()[0])


@simulated()
def _classes() -> dict[str, list[str]]:
    from vllm.model_executor.models.registry import ModelRegistry

    found: dict[str, list[str]] = {}
    for architecture, model in ModelRegistry.models.items():
        module = model.module_name.removeprefix("vllm.model_executor.models.")
        found.setdefault(f"{module}:{model.class_name}", []).append(architecture)
    return found


@simulated()
def _digests(asked: dict[str, list[str]]) -> dict[str, str]:
    import hashlib
    import json

    _stand_in()
    from what_fuses.instances import instance

    found = {}
    for name, architectures in asked.items():
        try:
            content = json.dumps(instance(architectures), sort_keys=True)
        except Exception as error:
            content = _words(error)
        found[name] = hashlib.sha256(content.encode()).hexdigest()
    return found


@simulated(env=_ENVIRONMENT)
def _looks(asked: dict[str, list[str]]) -> dict[str, Found]:
    _stand_in()
    from what_fuses.look import look

    found = {}
    for name, architectures in asked.items():
        try:
            found[name] = look(architectures)
        except Exception as error:
            found[name] = Found(error=_words(error))
    return found


def _stand_in() -> None:
    import sys

    from what_fuses.absent import stand_in

    sys.path.append(str(Path(simulation.__file__).parent / "flash_attn_stand_in"))
    stand_in()


def _words(error: BaseException) -> str:
    """The error that the others were raised from, in a line."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split()) or traceback.extract_tb(error.__traceback__)[-1].line
    return f"{type(error).__name__}: {text}"[:300]
