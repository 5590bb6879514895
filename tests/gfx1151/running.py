"""Runs cases of the op through the emulator, and compares what they leave behind."""

import torch

from tests.gfx1151.emulator import launch
from tests.gfx1151.emulator.code_object import CodeObject
from tests.gfx1151.emulator.floats import Transcendentals
from tests.gfx1151.emulator.measure import Measured
from tests.gfx1151.launches import Packed
from tests.kernel import cases, compare
from tests.kernel.cases import Case
from tests.kernel.compare import Tally
from tests.kernel.op import Arguments
from tests.kernel.reference import rope_cache


def execute(
    code: CodeObject, launched: Packed, arguments: Arguments, trans: Transcendentals
) -> Measured:
    """Executes a launch on the tensors of a case."""
    kernel = code.kernel(launched.launch.kernel)
    return launch.run(kernel, launched.launch, launched.tensors(arguments), trans)


def execute_and_check(
    code: CodeObject, launched: Packed, case: Case, trans: Transcendentals, tally: Tally
) -> Measured:
    """Executes a case and checks everything that it left behind against the reference."""
    expected = rope_cache(case.arguments)
    case.memory.snapshot()
    measured = execute(code, launched, case.arguments, trans)
    cases.check(case.arguments, expected, tally)
    case.memory.assert_untouched_but(case.written())
    return measured


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """All the bytes of a tensor's storage: its guards, and what shares it."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def assert_same_memory(actual: Arguments, expected: Arguments, launched: Packed) -> None:
    """Asserts that the memory of all tensors of a launch is the same, bit for bit."""
    for name in launched.addresses:
        got, wanted = getattr(actual, name), getattr(expected, name)
        compare.assert_same_bits(name, got, wanted)
        assert torch.equal(memory_of(got), memory_of(wanted)), f"the memory around {name} differs"


def assert_same_as_host(actual: Arguments, on_host: Arguments, launched: Packed) -> None:
    """The same for results of the host build. Q with Mistral's scaling may differ by an ulp of its
    head, as v_log_f32 is not the host's logarithm; it is then made equal."""
    if actual.q_scale_beta:
        scaled = "q" if actual.q_out is None else "q_out"
        got, wanted = getattr(actual, scaled), getattr(on_host, scaled)
        compare.assert_close(scaled, got, wanted, bound=1.0)
        got.copy_(wanted)
    assert_same_memory(actual, on_host, launched)
