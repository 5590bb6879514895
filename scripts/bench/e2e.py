"""A whole model with the fusion on and off: `make bench-e2e MODEL=<model>`.

    python -m scripts.bench.e2e --model MODEL [--batches 1,8] [--rounds 5] ...

For a gfx115x GPU and a Python with the patched vLLM. Each round starts vLLM twice, with the fusion
on and off, in turns, so that what drifts meets both; the medians are over all rounds. Leaves
build/bench/e2e-<model>.json and .md.
"""

import argparse
import dataclasses
import datetime
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from scripts import errors, paths
from scripts.bench.shapes import choose_numbers
from scripts.errors import Fault

ON, OFF = "on", "off"
# A run: (fusion, batch) -> milliseconds an output token, of each repeat.
Run = Callable[[str, int], list[float]]


@dataclasses.dataclass(frozen=True)
class Result:
    """Milliseconds an output token at one batch size, of every repeat of every round."""

    batch: int
    on: Sequence[float]
    off: Sequence[float]

    @property
    def ratio(self) -> float:
        """How many times faster with the fusion, by the medians."""
        return statistics.median(self.off) / statistics.median(self.on)


def in_turns(rounds: int) -> Iterator[str]:
    """on, off, off, on, on, off, ...: neither is always first."""
    for number in range(rounds):
        yield from (ON, OFF) if number % 2 == 0 else (OFF, ON)


def measure(run: Run, batch: int, rounds: int) -> Result:
    """Runs both in turns."""
    times: dict[str, list[float]] = {ON: [], OFF: []}
    for fusion in in_turns(rounds):
        found = run(fusion, batch)
        times[fusion] += found
        print(f"e2e: batch {batch}, fusion {fusion}: {statistics.median(found):.3f} ms", flush=True)
    return Result(batch, times[ON], times[OFF])


def parse(output: str) -> list[float]:
    """The milliseconds in what a run printed: its last line of JSON, whatever is around it.

    Raises Fault where there is none, or a time that cannot be one.
    """
    for line in reversed(output.splitlines()):
        if not line.startswith('{"milliseconds"'):
            continue
        times = json.loads(line)["milliseconds"]
        if not times or not all(isinstance(time, float) and time > 0 for time in times):
            raise Fault(f"a run gives times that cannot be: {line}")
        return times
    raise Fault("a run printed no times; its last words are above")


def markdown(model: str, device: str, date: str, results: Sequence[Result]) -> str:
    """The table."""
    lines = [
        f"# {model} on {device}",
        "",
        f"{date}. Made by `make bench-e2e MODEL={model}`: vLLM started anew for each run, with the "
        "fusion on and off in turns; median milliseconds an output token, lowest and highest.",
        "",
        "| batch | off | on | times faster | runs of each |",
        "| --- | --- | --- | --- | --- |",
    ]
    for r in results:
        off, on = (
            f"{statistics.median(times):.3f} ({min(times):.3f} to {max(times):.3f})"
            for times in (r.off, r.on)
        )
        lines.append(f"| {r.batch} | {off} | {on} | {r.ratio:.3f} | {len(r.on)} |")
    return "\n".join(lines) + "\n"


def in_vllm(model: str, input_tokens: int, output_tokens: int, repeats: int) -> Run:
    """A run in a process of its own."""

    def run(fusion: str, batch: int) -> list[float]:
        numbers = map(str, (batch, input_tokens, output_tokens, repeats))
        command = [sys.executable, "-m", "scripts.bench.e2e_run", model, fusion, *numbers]
        done = subprocess.run(
            command, cwd=paths.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            if done.returncode != 0:
                raise Fault(f"vLLM ended with status {done.returncode}; its last words are above")
            return parse(done.stdout)
        except Fault:
            print("\n".join(done.stdout.splitlines()[-40:]))
            raise

    return run


def main() -> None:
    """Reads the arguments, measures, writes."""
    parser = argparse.ArgumentParser(prog="e2e", description="A model with the fusion on and off.")
    parser.add_argument("--model", required=True, help="a name or a folder, as vLLM takes it")
    parser.add_argument("--batches", default="", help="sequences at a time (1,8)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5, help="measurements in a run")
    parser.add_argument("--input-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=257)
    arguments = parser.parse_args()
    if not arguments.model:
        raise Fault("no model; `make bench-e2e MODEL=<model>`")
    batches = choose_numbers("BATCHES", arguments.batches, (1, 8))
    device = device_name()
    run = in_vllm(
        arguments.model, arguments.input_tokens, arguments.output_tokens, arguments.repeats
    )
    results = [measure(run, batch, arguments.rounds) for batch in batches]
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    stem = re.sub(r"[^A-Za-z0-9.]+", "-", arguments.model).strip("-")
    content = vars(arguments) | {
        "device": device,
        "date": date,
        "results": [dataclasses.asdict(result) for result in results],
    }
    table = markdown(arguments.model, device, date[:10], results)
    folder = paths.BUILD / "bench"
    _write(folder / f"e2e-{stem}.json", json.dumps(content, indent=1) + "\n")
    _write(folder / f"e2e-{stem}.md", table)
    print(table)


def device_name() -> str:
    """The GPU's name. Fault where it is no gfx115x, or vLLM is not there."""
    try:
        import vllm  # noqa: F401

        from scripts.bench import gpu
    except ModuleNotFoundError as missing:
        raise Fault(
            f"{sys.executable} has no {missing.name}; name a Python with the patched vLLM, "
            "PYTHON=<interpreter>"
        ) from None
    if importlib.util.find_spec("vllm.v1.attention.ops.rdna35_rope_cache") is None:
        raise Fault(
            f"the vllm of {sys.executable} is not patched; install the wheel of `make wheel`"
        )
    name, architecture = gpu.name(), gpu.architecture()
    if not architecture.startswith("gfx115"):
        raise Fault(f"{name} is {architecture}; the fusion is for gfx1150 to gfx1153")
    return f"{name} ({architecture})"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


if __name__ == "__main__":
    errors.run("e2e", main)
