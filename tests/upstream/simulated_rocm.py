"""pytest plugin: the process is a simulated ROCm machine before any test is imported.

The variables STAGED_TREE and STAGED_OP name vLLM's tree and the op library.
"""

import os
from pathlib import Path

from simulation.worker import become_a_rocm_machine


def pytest_configure() -> None:
    """Comes before collection, where tests ask for the platform."""
    become_a_rocm_machine(Path(os.environ["STAGED_TREE"]), Path(os.environ["STAGED_OP"]))
