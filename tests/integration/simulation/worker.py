"""The simulated machine: a process that runs test bodies, one after another.

Started by `host.py` as `python -m simulation.worker <tree> <op library or ->`. Requests and answers
are pickles on stdin and stdout; what tests and vLLM print goes to stderr.
"""

import importlib.util
import os
import pickle
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any


def become_a_rocm_machine(tree: Path, op_library: Path | None) -> None:
    """Make this process's vLLM a ROCm one whose device is the CPU.

    Everything that vLLM decides by platform is decided by its own RocmPlatform; only where tensors
    live and how ops are dispatched is the CPU's.
    """
    import torch

    from simulation.native_ops import define_native_ops
    from simulation.triton_interpreter import correct_interpreter

    correct_interpreter()
    define_native_ops(tree)
    if op_library is not None:
        torch.ops.load_library(op_library)

    from vllm.platforms import rocm

    rocm.RocmPlatform.device_type = "cpu"
    rocm.RocmPlatform.dispatch_key = "CPU"
    rocm.RocmPlatform.get_device_communicator_cls = lambda _: (
        "simulation.communicator.GlooCommunicator"
    )
    # Compiled pieces ask for the pool that their graphs would share; none is captured here.
    rocm.RocmPlatform.get_global_graph_pool = lambda _: (0, 0)
    rocm.RocmPlatform.num_compute_units = lambda *_: 20  # as HIP counts gfx1151's, in pairs
    torch.accelerator.empty_cache = lambda: None
    torch.accelerator.max_memory_allocated = lambda *_: 0

    # Only now: vLLM registers its own ops for the platform's key as it is imported.
    from vllm.model_executor.models import registry
    from vllm.utils import torch_utils

    # vLLM looks at each model class in a process of its own, so as not to touch a GPU in this
    # one. There is none, and such a process takes ten seconds.
    registry._run_in_subprocess = lambda look: look()
    torch_utils.PIN_MEMORY = False


def _load(path: Path) -> ModuleType:
    """The test's module; it finds what lies beside it."""
    name = f"simulated_{path.stem}"
    if name not in sys.modules:
        sys.path.append(str(path.parent))
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def _answer(path: Path, function: str, kwargs: dict[str, Any]) -> tuple[str, Any]:
    """("ok", result), or ("skipped" or "failed", text)."""
    import pytest

    try:
        return "ok", getattr(_load(path), function).body(**kwargs)
    except pytest.skip.Exception as skip:
        return "skipped", str(skip)
    except BaseException:
        return "failed", traceback.format_exc()


def main() -> None:
    tree, library = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    become_a_rocm_machine(Path(tree), None if library == "-" else Path(library))
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer = _answer(*request)
        answers.write(pickle.dumps(answer))
        answers.flush()


if __name__ == "__main__":
    main()
