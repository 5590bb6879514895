"""What the machine code executes for a model family, instruction by instruction:

python -m tests.gfx1151.report qwen3 --tokens 3 --dtype bfloat16
"""

import argparse
import tempfile
from pathlib import Path

import torch

from tests.gfx1151 import launches
from tests.gfx1151.emulator import code_object, launch
from tests.kernel import op
from tests.kernel.families import BY_NAME


def main() -> None:
    """Prints one launch's figures (measure.py says what they are)."""
    parser = argparse.ArgumentParser(prog="report", description=__doc__)
    parser.add_argument("family", choices=BY_NAME)
    parser.add_argument("--tokens", type=int, default=1)
    parser.add_argument("--dtype", choices=("float16", "bfloat16"), default="bfloat16")
    chosen = parser.parse_args()
    key = launches.Key(BY_NAME[chosen.family], chosen.tokens, getattr(torch, chosen.dtype))
    library = op.library()
    with tempfile.TemporaryDirectory() as folder:
        packed = launches.pack([key], library, Path(folder))[key]
    code = code_object.load(library.parent / "gfx1151" / "rdna35_rope_cache.hsaco")
    tensors = packed.tensors(key.build().arguments)
    measured = launch.run(code.kernel(packed.launch.kernel), packed.launch, tensors)
    print(f"{packed.launch.kernel}, grid {packed.launch.grid}, {packed.launch.threads} threads")
    print(measured.table())


if __name__ == "__main__":
    main()
