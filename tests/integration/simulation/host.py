"""Runs tests on simulated ROCm machines, each a process of its own.

A process can be one platform only, so a test that needs a ROCm machine runs in a worker process:

    @simulated(arch="gfx1151")
    def test_something(head_size):  # parametrized as usual; arguments must pickle
        import vllm  # inside: the test's module is also imported where there is no vLLM

The result of the test's body comes back, so a test can also ask two machines and compare:

    @simulated(arch="gfx942", tree="pristine")
    def capabilities(): ...

    def test_capabilities_are_as_upstream():
        assert capabilities.on(arch="gfx942") == capabilities.on(arch="gfx942", tree="pristine")
"""

import atexit
import functools
import os
import pickle
import select
import subprocess
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts import paths
from scripts.pin import load_pin
from simulation.trees import tree_path

_HERE = Path(__file__).resolve().parent
_MOST_PROCESSES = 3  # of about 1 GB each
_SECONDS = 800.0  # for one test body
_SECONDS_ALONE = 3600.0  # for one that has the process to itself


@functools.cache
def _op_library() -> Path:
    """The op library that all tests use: see `op_library` in tests/conftest.py."""
    if named := os.environ.get("RDNA35_TEST_LIBRARY"):
        return Path(named)
    from scripts import op

    return op.build()


@dataclass(frozen=True)
class Machine:
    """What a simulated machine is made of.

    arch: the GPU's architecture, one of the stand-in amdsmi's.
    tree: "patched" (the checkout) or "pristine" (its base commit).
    op: whether the op library is loaded.
    aiter: whether an AITER is installed: the stand-in in aiter_stand_in/.
    env: more environment variables.
    """

    arch: str = "gfx1151"
    tree: str = "patched"
    op: bool = True
    aiter: bool = False
    env: tuple[tuple[str, str], ...] = ()


def environment(machine: Machine, tree: Path, home: Path) -> dict[str, str]:
    """The environment of a machine's process, which keeps its files in `home`."""
    path = [_HERE / "stand_ins", _metadata(home), tree, _HERE.parent, paths.ROOT]
    if machine.aiter:
        path.insert(0, _HERE / "aiter_stand_in")
    # Without byte code in its files, vLLM takes a minute to import.
    dropped = ("VLLM_", "PYTEST_", "PYTHONDONTWRITEBYTECODE")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "SIMULATED_ARCH": machine.arch,
        # vLLM keeps Triton without a driver only if no device is visible.
        "HIP_VISIBLE_DEVICES": "",
        "TRITON_INTERPRET": "1",
        "VLLM_CACHE_ROOT": f"{home}/vllm",
        "TORCHINDUCTOR_CACHE_DIR": f"{home}/inductor",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_DISABLE_SHARED_EXPERTS_STREAM": "1",  # a stream is a GPU's
        "HF_HUB_OFFLINE": "1",
        **dict(machine.env),
    }


def _metadata(home: Path) -> Path:
    """A folder that tells importlib.metadata which vLLM is installed: vLLM asks it."""
    version = load_pin().version
    folder = home / "installed" / f"vllm-{version}.dist-info"
    folder.mkdir(parents=True)
    folder.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
    )
    return folder.parent


class _Process:
    def __init__(self, machine: Machine) -> None:
        tree = tree_path(machine.tree)
        library = str(_op_library()) if machine.op else "-"
        self.home = tempfile.TemporaryDirectory(prefix="simulated-")
        self.log = Path(self.home.name, "log")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "simulation.worker", str(tree), library],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.home.name,
                env=environment(machine, tree, Path(self.home.name)),
            )

    def ask(
        self, request: tuple[Path, str, dict[str, Any]], seconds: float = _SECONDS
    ) -> tuple[str, Any]:
        """The worker's answer.

        Raises:
            RuntimeError: The worker ended or does not answer; with the end of its log.
        """
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        try:
            stdin.write(pickle.dumps(request))
            stdin.flush()
            ready, _, _ = select.select([stdout], [], [], seconds)
            if ready:
                return pickle.load(stdout)
            what = f"no answer in {seconds:.0f} s"
        except (EOFError, BrokenPipeError):
            what = f"ended with status {self.process.wait()}"
        tail = self.tail()
        self.close()
        raise RuntimeError(f"simulated machine: {what}\n{tail}")

    def tail(self) -> str:
        """The end of what the worker printed."""
        return "".join(self.log.read_text(errors="replace").splitlines(keepends=True)[-60:])

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        if self.alive:
            self.process.kill()
            self.process.wait()
        self.home.cleanup()


_processes: OrderedDict[Machine, _Process] = OrderedDict()


def _process(machine: Machine) -> _Process:
    """The machine's process, started if need be; the least recently used ends."""
    process = _processes.pop(machine, None)
    if process is None or not process.alive:
        while len(_processes) >= _MOST_PROCESSES:
            _processes.popitem(last=False)[1].close()
        process = _Process(machine)
    _processes[machine] = process
    return process


@atexit.register
def _close_all() -> None:
    while _processes:
        _processes.popitem()[1].close()


class _Simulated:
    """A function that runs on a simulated machine when called."""

    def __init__(self, body: Callable[..., Any], machine: Machine) -> None:
        self.body = body
        self.machine = machine
        functools.update_wrapper(self, body)

    def __call__(self, **kwargs: Any) -> Any:
        return self._run(self.machine, kwargs)

    def on(self, **changes: Any) -> Any:
        """The body's result, without arguments, on another machine."""
        return self._run(Machine(**{**vars(self.machine), **changes}), {})

    def alone(self, **kwargs: Any) -> Any:
        """The body's result, in a process of its own that ends with it, however long it takes."""
        process = _Process(self.machine)
        try:
            return self._result(process, self.machine, kwargs, _SECONDS_ALONE)
        finally:
            process.close()

    def _run(self, machine: Machine, kwargs: dict[str, Any]) -> Any:
        return self._result(_process(machine), machine, kwargs, _SECONDS)

    def _result(
        self, process: _Process, machine: Machine, kwargs: dict[str, Any], seconds: float
    ) -> Any:
        path = Path(self.body.__code__.co_filename)
        outcome, result = process.ask((path, self.body.__name__, kwargs), seconds)
        match outcome:
            case "ok":
                return result
            case "skipped":
                pytest.skip(result)
        pytest.fail(f"on {machine}:\n{result}\n{process.tail()}", pytrace=False)


def simulated(
    arch: str = "gfx1151",
    tree: str = "patched",
    op: bool = True,
    aiter: bool = False,
    env: dict[str, str] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run the decorated function on a simulated machine (see `Machine`).

    The function is found by its name in its module, so it must be at module level. Its arguments
    and its result are pickled; its assertions fail the test with the worker's traceback.
    """
    machine = Machine(arch, tree, op, aiter, tuple(sorted((env or {}).items())))

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        return _as_function(_Simulated(body, machine))

    return decorate


def _as_function(run: _Simulated) -> Callable[..., Any]:
    """A plain function for pytest to collect, with the body's signature."""

    @functools.wraps(run.body)
    def call(**kwargs: Any) -> Any:
        return run(**kwargs)

    call.body = run.body  # type: ignore[attr-defined]
    call.on = run.on  # type: ignore[attr-defined]
    call.alone = run.alone  # type: ignore[attr-defined]
    return call
