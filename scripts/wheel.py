"""Makes the patched wheel: `make wheel`.

    [BASE_WHEEL=<file> [FORCE=1]] python -m scripts.wheel

On a ROCm host that is a full build by vLLM's own CMake, with BASE_WHEEL that wheel with the series
laid over it, and otherwise vLLM's Python with the op library beside it. The wheel is verified
before it gets its place in dist/; the last line of output names it.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scripts import (
    checkout,
    errors,
    lock,
    op,
    paths,
    wheel_base,
    wheel_op,
    wheel_python,
    wheel_rocm,
)
from scripts.errors import Fault
from scripts.pin import Pin, load_pin
from scripts.wheel_changes import Changes, read_changes
from scripts.wheel_pack import New
from scripts.wheel_verify import verify

WORK = paths.BUILD / "wheel"

_ELSEWHERE = (
    "it has no GPU code of vLLM's own: for serving there, make it on a ROCm host"
    " or over a ROCm wheel (BASE_WHEEL=)"
)


@dataclass(frozen=True)
class Kind:
    """One of the ways to a wheel."""

    title: str
    use: str
    build: Callable[[Pin, Changes], Path]
    base: Path | None = None


def choose_kind() -> Kind:
    """The kind of wheel that the environment asks for, or that this host can make."""
    base, force = os.environ.get("BASE_WHEEL"), os.environ.get("FORCE", "") not in ("", "0")
    if base:
        return _over_base(Path(base), force)
    if force:
        raise Fault("FORCE=1 is for BASE_WHEEL=; give one, or leave it out")
    rocm = wheel_rocm.find_rocm()
    if rocm.lacks is None:
        return Kind(
            "full build for ROCm",
            "serves models on Strix Halo",
            lambda pin, changes: wheel_rocm.build(pin, changes, rocm, WORK / "rocm"),
        )
    if rocm.root or rocm.torch_hip:
        _say(f"no full build: {rocm.lacks}")
    return Kind(
        "vLLM's Python and the op library",
        f"trying and testing the series; does not serve models on Strix Halo, because {_ELSEWHERE}",
        lambda pin, changes: wheel_python.build(pin, changes, _op(), WORK / "python"),
    )


def make(pin: Pin, kind: Kind) -> Path:
    """Builds and verifies the wheel, puts it into dist/ and says what it is; returns its path."""
    checkout.checkout(pin)
    changes = read_changes(pin)
    wheel = kind.build(pin, changes)
    _say(f"verifying {wheel.name}")
    verified = verify(wheel, pin, changes, kind.base)
    for problem in verified.problems:
        _say(problem)
    if verified.problems:
        count = len(verified.problems)
        raise Fault(
            f"{wheel} has {count} fault{'s' if count > 1 else ''}, see above; it stays out of dist/"
        )
    paths.DIST.mkdir(exist_ok=True)
    placed = paths.DIST / wheel.name
    wheel.replace(placed)
    _summarize(pin, kind, changes, verified.content_only)
    return placed


def _over_base(base: Path, force: bool) -> Kind:
    lacks = wheel_base.rocm_lacks(base)
    use = (
        f"does not serve models on Strix Halo: {', '.join(lacks)}"
        if lacks
        else "serves models on Strix Halo"
    )
    return Kind(
        f"the series over {base.name}" + (", forced" if force else ""),
        use,
        lambda pin, changes: _build_over(pin, changes, base, force),
        base,
    )


def _build_over(pin: Pin, changes: Changes, base: Path, force: bool) -> Path:
    wheel_base.check(pin, changes, base, force)  # Before the op library, which takes longer.
    return wheel_base.build(pin, changes, _op(), base, force, WORK / "base")


def _op() -> dict[str, New]:
    _say("building the op library")
    return wheel_op.members(op.build())


def _summarize(pin: Pin, kind: Kind, changes: Changes, content_only: str | None) -> None:
    checked = (
        "its contents, and installed"
        if content_only is None
        else f"its contents; not installed, because {content_only}"
    )
    _say(f"kind: {kind.title}")
    _say(f"use: {kind.use}")
    _say(
        f"holds: {len(changes.added)} files of the series' own, {len(changes.patched)} patched,"
        f" the op with code for {', '.join(pin.architectures)}"
    )
    _say(f"verified: {checked}")


def _say(text: str) -> None:
    print(f"wheel: {text}", flush=True)


def main() -> None:
    """Makes the wheel; the last line of output is its path and sha256."""
    with lock.held("wheel"):
        wheel = make(load_pin(), choose_kind())
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    _say(f"{wheel.relative_to(paths.ROOT)} sha256={digest}")


if __name__ == "__main__":
    errors.run("wheel", main)
