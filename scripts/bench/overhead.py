"""What a call of the op costs on the host, beside an op of the same schema that does nothing.

    python -m scripts.bench.overhead [--output build/bench]

From Python, without waiting for the GPU: T = 0 is the dispatcher, the arguments and the checks;
T = 1 on a GPU the launch too. Without a GPU, on CPU tensors, T = 0 alone. Both ops take turns in
one process. Leaves build/bench/overhead-<device>.json.
"""

import argparse
import datetime
import hashlib
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from scripts import errors, op, paths
from scripts.errors import Fault

_CALLS = 200  # between two looks at the clock; fewer than a GPU's queue takes
_ROUNDS = 200
_KINDS = {"Tensor": "T", "Optional[Tensor]": "t", "Optional[List[int]]": "l"}


def noop(schema: str, kinds: str) -> Callable[..., None]:
    """The op that does nothing, of the arguments in `schema`: "(Tensor positions, ...) -> ()".

    kinds: a letter an argument, see noop.cpp. Compiled once for its source.
    """
    import torch

    source = Path(__file__).with_name("noop.cpp")
    lib = Path(torch.__file__).parent / "lib"
    command = [*shlex.split(os.environ.get("CXX", "c++")), "-std=c++17", "-O2", "-shared", "-fPIC"]
    command += [f'-DNOOP_SCHEMA="noop{schema}"', f'-DNOOP_KINDS="{kinds}"', str(source)]
    command += [f"-L{lib}", "-Wl,--no-as-needed", "-ltorch_cpu"]
    key = hashlib.sha256("\0".join(command).encode() + source.read_bytes()).hexdigest()[:16]
    library = paths.BUILD / "bench" / f"noop-{key}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        new = library.with_suffix(f".{os.getpid()}.new")
        done = subprocess.run([*command, "-o", str(new)], capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stderr, end="")
            raise Fault(f"{command[0]} does not compile {source.name}, see above")
        new.replace(library)
    torch.ops.load_library(str(library))
    return torch.ops.rdna35_bench.noop.default


def measure(library: Path, device: str) -> dict[str, dict[str, float]]:
    """ns a call: "T=0" and, on a GPU, "T=1" -> "op", "noop" -> the median of the rounds."""
    import torch

    from scripts.bench import inputs, variants
    from scripts.bench.shapes import SHAPES

    torch.ops.load_library(str(library))
    schema = torch.ops._rocm_C.rdna35_rope_cache.default._schema
    kinds = "".join(_KINDS.get(str(argument.type), ".") for argument in schema.arguments)
    nothing = noop(str(schema).partition("rdna35_rope_cache")[2], kinds)
    shape = next(shape for shape in SHAPES if shape.norm)
    one = inputs.make_sets(shape, 1, 128, 1, torch.device(device))[0]
    found = {}
    for tokens in (0, 1) if device == "cuda" else (0,):
        arguments = variants.arguments(inputs.first_tokens(one, tokens))
        calls: dict[str, Callable[..., None]] = {
            "op": torch.ops._rocm_C.rdna35_rope_cache.default,
            "noop": nothing,
        }
        samples: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(_ROUNDS):
            for name, call in calls.items():
                begun = time.perf_counter_ns()
                for _ in range(_CALLS):
                    call(*arguments)
                samples[name].append((time.perf_counter_ns() - begun) / _CALLS)
                if device == "cuda":
                    torch.cuda.synchronize()
        found[f"T={tokens}"] = {name: statistics.median(values) for name, values in samples.items()}
    return found


def main() -> None:
    """Measures, prints, writes."""
    parser = argparse.ArgumentParser(prog="overhead", description="The op's cost on the host.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench")
    folder = parser.parse_args().output
    try:
        import torch
    except ModuleNotFoundError:
        raise Fault(f"{sys.executable} has no torch; name one that has with PYTHON=") from None
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        from scripts.bench import gpu

        name, library = gpu.name(), op.build((gpu.architecture(),))
    else:
        name, library = "CPU tensors", op.build()
    found = measure(library, "cuda" if on_gpu else "cpu")
    for case, times in found.items():
        more = times["op"] - times["noop"]
        print(
            f"overhead: {name}, {case}: {times['op']:.0f} ns a call, an op that does nothing "
            f"{times['noop']:.0f} ns: {more:.0f} ns more"
        )
    content = {
        "device": name,
        "host": platform.processor() or platform.machine(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {"torch": torch.__version__, "Python": platform.python_version()},
        "nanoseconds": found,
    }
    from scripts.bench.results import file_of

    path = file_of(folder, f"overhead {name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}.new")
    new.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    new.replace(path)


if __name__ == "__main__":
    errors.run("overhead", main)
