"""The op inside CUDA graphs and on several streams, as vLLM runs it."""

from collections.abc import Callable

import pytest
import torch

from tests.kernel import cases, compare, op
from tests.kernel.cases import Case
from tests.kernel.families import BY_NAME
from tests.kernel.op import Arguments

pytestmark = pytest.mark.skipif(op.device().type != "cuda", reason="needs a GPU")

FAMILY_NAMES = ("llama3", "qwen3", "gemma4-sliding", "gemma4-kv-shared", "ministral3")
PADDED = 32


def launch(a: Arguments) -> None:
    """The op, without waiting for it."""
    op.load()(*a.as_tuple())


def built(name: str, seed: int) -> Case:
    return cases.build(BY_NAME[name], PADDED, torch.bfloat16, seed=seed)


def fill(into: Arguments, source: Arguments) -> None:
    """Copies a step's inputs, and its model's weights, into the tensors that a graph knows."""
    names = ("positions", "q", "k", "v", "cos_sin_cache", "q_weight", "k_weight", "kv_cache")
    for name in (*names, "slot_mapping"):
        static = getattr(into, name)
        if static is not None:
            static.copy_(getattr(source, name))


def captured(a: Arguments) -> torch.cuda.CUDAGraph:
    """A graph of one call. Runs the op once before, which loads its code."""
    launch(a)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(a)
    return graph


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_graph_replays_with_changed_inputs_and_fewer_tokens(name: str) -> None:
    """Captured at a padded size; the padding's slots are -1, as vLLM fills them."""
    static = built(name, seed=0)
    graph = captured(static.arguments)
    for real, seed in ((PADDED, 1), (1, 2), (7, 3), (31, 4), (PADDED, 5)):
        step = built(name, seed)
        if step.arguments.slot_mapping is not None:
            step.arguments.slot_mapping[real:] = -1
        fill(static.arguments, step.arguments)
        static.memory.snapshot()
        graph.replay()
        torch.cuda.synchronize()
        op.run(step.arguments)
        compare.assert_same_bits("q", static.arguments.q, step.arguments.q)
        if step.arguments.k is not None:
            compare.assert_same_bits("k", cases.k_of(static.arguments), step.arguments.k)
        static.memory.assert_untouched_but(static.written())
        rows = zip(
            cases.cache_rows(static.arguments), cases.cache_rows(step.arguments), strict=True
        )
        for (token, row), (_, expected) in rows:
            compare.assert_same_bits(f"cache row of token {token}", row[None], expected[None])


def test_capture_works_after_the_load_op_alone() -> None:
    """vLLM loads the code when weights are processed, and may capture next."""
    case = built("qwen3", seed=1)
    torch.ops._rocm_C.rdna35_rope_cache_load(case.arguments.q)
    expected = cases.build(BY_NAME["qwen3"], PADDED, torch.bfloat16, seed=1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(case.arguments)
    graph.replay()
    op.run(expected.arguments)
    compare.assert_same_bits("q", case.arguments.q, expected.arguments.q)


def test_a_captured_call_allocates_nothing() -> None:
    """aiter 5193: a buffer that a call makes on the GPU is freed under the graph that captured it.
    The driver's own allocations are errors in a capture; torch's are counted."""
    case = built("qwen3", seed=1)
    launch(case.arguments)
    torch.cuda.synchronize()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        launch(case.arguments)
        after = torch.cuda.memory_stats()["allocation.all.allocated"]
    assert after == before


def test_op_runs_on_the_current_stream() -> None:
    """On a stream whose earlier work is slow and makes the op's input."""
    case, expected = built("qwen3", seed=1), built("qwen3", seed=1)
    a = case.arguments
    inputs = a.q.clone()
    a.q.zero_()
    op.run(expected.arguments)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        a.q.copy_(inputs)
        launch(a)
    torch.cuda.synchronize()
    compare.assert_same_bits("q", a.q, expected.arguments.q)


def test_two_streams_at_once_do_not_mix() -> None:
    """Many launches of different families in flight together."""
    names = ("qwen3", "gemma4-sliding")
    rounds = 40

    def outputs_of(case: Case) -> Arguments:
        a = case.arguments
        assert a.k is not None and a.v is not None
        return a.replace(
            q_out=torch.empty_like(a.q), k_out=torch.empty_like(a.k), v_out=torch.empty_like(a.v)
        )

    expected = []
    for index, name in enumerate(names):
        a = outputs_of(built(name, seed=index))
        op.run(a)
        expected.append(a)
    calls = [
        [outputs_of(built(name, seed=index)) for _ in range(rounds)]
        for index, name in enumerate(names)
    ]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in names]
    for step in range(rounds):
        for stream, of_stream in zip(streams, calls, strict=True):
            with torch.cuda.stream(stream):
                launch(of_stream[step])
    torch.cuda.synchronize()
    for want, of_stream in zip(expected, calls, strict=True):
        for a in of_stream:
            for get in (cases.q_of, cases.k_of, v_of):
                assert_same(get, a, want)


def v_of(a: Arguments) -> torch.Tensor:
    assert a.v_out is not None
    return a.v_out


def assert_same(
    get: Callable[[Arguments], torch.Tensor], actual: Arguments, expected: Arguments
) -> None:
    compare.assert_same_bits(get.__name__, get(actual), get(expected))


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_a_hundred_runs_are_the_same_bits(name: str) -> None:
    """In one stream without waiting in between, so that launches overlap as they may."""
    a = built(name, seed=3).arguments
    if a.k is not None:
        a = a.replace(k_out=torch.empty_like(a.k))
    outputs = [torch.empty_like(a.q) for _ in range(100)]
    for out in outputs:
        launch(a.replace(q_out=out))
    torch.cuda.synchronize()
    for out in outputs[1:]:
        assert torch.equal(out.view(torch.int16), outputs[0].view(torch.int16))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_op_runs_on_its_tensors_device() -> None:
    case = cases.build(BY_NAME["qwen3"], 5, torch.bfloat16, device=torch.device("cuda:1"))
    case.run_and_check()
