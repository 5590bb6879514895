"""Imports modules of a vLLM tree on a simulated gfx1151 machine.

    python -m tests.upstream.imports TREE OP_LIBRARY MODULE...

Ends with status 1 after `MODULE: reason` for each that cannot be imported.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))

from simulation.host import Machine, environment

CODE = """
import importlib, pathlib, sys
from simulation.worker import become_a_rocm_machine
tree, library, *modules = sys.argv[1:]
become_a_rocm_machine(pathlib.Path(tree), pathlib.Path(library))
status = 0
for module in modules:
    try:
        importlib.import_module(module)
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        print(f"{module}: {type(error).__name__}: {reason}", flush=True)
        status = 1
sys.exit(status)
"""


def main() -> None:
    """Runs the imports in a process of such a machine."""
    tree = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="imports-") as home:
        command = [sys.executable, "-c", CODE, str(tree), *sys.argv[2:]]
        done = subprocess.run(
            command,
            cwd=home,
            env=environment(Machine(), tree, Path(home)),
            capture_output=True,
            text=True,
        )
    print(done.stdout, end="")
    if done.returncode and not done.stdout:
        print((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
