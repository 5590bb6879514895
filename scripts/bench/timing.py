"""GPU time of small kernels, by replaying CUDA graphs.

A chain is a graph of many calls, one after another: its time divided by their number is what one
call takes in a graph of a whole model, with the gap to the next kernel. Chains of all variants
take turns, so that a drift of the clocks meets them alike.
"""

import dataclasses
import gc
import statistics
import time
from collections.abc import Callable, Mapping

import torch

# Runs a variant once on the set of tensors with this number.
Call = Callable[[int], object]

_WARM_UP_ROUNDS = 8
_ROUNDS = 40
_WARM_UP_SECONDS = 0.03
_REPLAYS = 64
_EAGER_CALLS = 100
_EAGER_ROUNDS = 7


@dataclasses.dataclass(frozen=True)
class Timing:
    """Microseconds a call: the median, and the 10th and 90th percentile of the samples."""

    median: float
    low: float
    high: float


def summarise(samples: list[float]) -> Timing:
    """The median and the spread of samples (at least two)."""
    tenths = statistics.quantiles(samples, n=10, method="inclusive")
    return Timing(statistics.median(samples), tenths[0], tenths[-1])


def chains(
    calls: Mapping[str, Call], length: int, sets: int, flush: torch.Tensor | None
) -> dict[str, Timing]:
    """Each variant in a chain of `length` calls, which go round `sets` sets of tensors.

    With `flush`, a tensor larger than the caches, it is overwritten before each replay: what a
    chain has not touched yet comes from memory.
    """
    graphs = {name: _captured(call, length, sets) for name, call in calls.items()}
    rounds = _WARM_UP_ROUNDS + _ROUNDS
    events = {name: [_pair() for _ in range(rounds)] for name in calls}
    _wake()
    for turn in range(rounds):
        for name, graph in graphs.items():
            if flush is not None:
                flush.fill_(turn)
            start, end = events[name][turn]
            start.record()
            graph.replay()
            end.record()
    torch.cuda.synchronize()
    return {
        name: summarise([1e3 * s.elapsed_time(e) / length for s, e in pairs[_WARM_UP_ROUNDS:]])
        for name, pairs in events.items()
    }


def replays(calls: Mapping[str, Call]) -> dict[str, Timing]:
    """Each variant as a graph of one call, replayed again and again: with the time that the GPU
    takes from one graph to the next."""
    graphs = {name: _captured(call, 1, 1) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    _wake()
    for _ in range(_EAGER_ROUNDS):
        for name, graph in graphs.items():
            start, end = _pair()
            # The replays wait in the queue behind this: the host does not slow them.
            torch.cuda._sleep(2_000_000)
            start.record()
            for _ in range(_REPLAYS):
                graph.replay()
            end.record()
            torch.cuda.synchronize()
            samples[name].append(1e3 * start.elapsed_time(end) / _REPLAYS)
    return {name: summarise(values) for name, values in samples.items()}


def eager(calls: Mapping[str, Call]) -> dict[str, Timing]:
    """Each variant called from Python without a graph: wall time a call, host and GPU together."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(_EAGER_ROUNDS):
        for name, call in calls.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(_EAGER_CALLS):
                call(0)
            torch.cuda.synchronize()
            samples[name].append(1e6 * (time.perf_counter() - start) / _EAGER_CALLS)
    return {name: summarise(values) for name, values in samples.items()}


def _captured(call: Call, length: int, sets: int) -> torch.cuda.CUDAGraph:
    """A graph of `length` calls. torch.cuda.graph() would collect garbage and empty the allocator's
    cache each time, which takes longer than the capture."""
    for number in range(min(2, sets)):
        call(number)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    collecting = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.stream(_capture_stream()):
            graph.capture_begin()
            for number in range(length):
                call(number % sets)
            graph.capture_end()
    finally:
        if collecting:
            gc.enable()
    return graph


_streams: list[torch.cuda.Stream] = []


def _capture_stream() -> torch.cuda.Stream:
    if not _streams:
        _streams.append(torch.cuda.Stream())
    return _streams[0]


def _pair() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def _wake() -> None:
    """Some work, so that the clocks are up."""
    x = torch.ones((2048, 2048), dtype=torch.bfloat16, device="cuda")
    end = time.perf_counter() + _WARM_UP_SECONDS
    while time.perf_counter() < end:
        for _ in range(8):
            torch.mm(x, x)
        torch.cuda.synchronize()
