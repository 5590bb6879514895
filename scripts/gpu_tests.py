"""Builds the op for the GPU that torch finds and runs the tests on it: `make test-gpu`.

    python -m scripts.gpu_tests [pytest's arguments]

The kernel tests run as on the CPU, on the GPU's tensors; tests/gpu has what a GPU alone can show.
"""

import os
import subprocess
import sys

from scripts import op, paths
from scripts.errors import Fault, run
from scripts.pin import load_pin


def architecture() -> str:
    """Of the current GPU, as code objects are named: gfx1151, sm_90.

    Fault where torch finds no GPU, or one for which the op has no code.
    """
    import torch

    if not torch.cuda.is_available():
        raise Fault(
            f"torch {torch.__version__} finds no GPU; name an interpreter whose torch does: "
            "`make test-gpu PYTHON=<interpreter>`"
        )
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    if torch.version.hip:
        found = properties.gcnArchName.split(":")[0]
    else:
        found = f"sm_{properties.major}{properties.minor}"
    built = (*load_pin().architectures, "sm_90")
    if found not in built:
        raise Fault(f"the GPU is a {found}; the op is built for {', '.join(built)}")
    return found


def main() -> None:
    """Builds, tests, and fails as pytest does."""
    found = architecture()
    library = op.build() if found in load_pin().architectures else op.build((found,))
    print(f"test-gpu: {found}, {library.relative_to(paths.ROOT)}", flush=True)
    env = {"RDNA35_TEST_DEVICE": "cuda", "RDNA35_TEST_LIBRARY": str(library)}
    command = [sys.executable, "-m", "pytest", "tests/kernel", "tests/gpu", *sys.argv[1:]]
    done = subprocess.run(command, cwd=paths.ROOT, env=os.environ | env)
    sys.exit(done.returncode)


if __name__ == "__main__":
    run("test-gpu", main)
