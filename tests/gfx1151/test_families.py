"""The shipped machine code, executed: what it computes, for every model family.

Two instructions of it are not exact in hardware: v_rsq_f32 (the norm) and v_log_f32 (Mistral's
scaling of Q), each within 1 ulp of fp32. The host build divides by a square root and calls logf in
their place. So results are compared with the host's bit for bit with the host's own rounding of
rsqrt, Q of scaled families excepted, and with the reference within the contract's bounds with those
instructions rounded correctly, and off by an ulp in either direction. v_rcp_f32 is moved likewise:
it is used in divisions, whose result must not change.
"""

import pytest

from tests.gfx1151.emulator import launch
from tests.gfx1151.emulator.code_object import CodeObject
from tests.gfx1151.emulator.floats import HostTranscendentals, Transcendentals
from tests.gfx1151.launches import FAMILY_KEYS, KERNEL_KEYS, ONE_OF_EACH, OPTION_KEYS, Key, Packed
from tests.gfx1151.running import (
    assert_same_as_host,
    assert_same_memory,
    execute,
    execute_and_check,
)
from tests.kernel import cases, compare, op
from tests.kernel.compare import Tally

# From a kernel's first instruction to its first store: its arguments; positions, slots, activations
# and weights; cos and sin.
ROUND_TRIPS = 3


def _is_approximated(key: Key) -> bool:
    family = key.family
    return bool(family.norm or family.v_norm or family.q_scale_beta)


@pytest.mark.parametrize("key", [*FAMILY_KEYS, *OPTION_KEYS], ids=str)
def test_results_are_within_the_contract(
    key: Key, code: CodeObject, packed: dict[Key, Packed]
) -> None:
    tally = Tally()
    execute_and_check(code, packed[key], key.build(), Transcendentals(), tally)
    tally.assert_rare()


@pytest.mark.parametrize("ulps", [1, -1])
@pytest.mark.parametrize("key", [key for key in FAMILY_KEYS if _is_approximated(key)], ids=str)
def test_an_ulp_of_the_hardwares_approximations_is_within_the_contract(
    key: Key, ulps: int, code: CodeObject, packed: dict[Key, Packed]
) -> None:
    tally = Tally()
    measured = execute_and_check(code, packed[key], key.build(), Transcendentals(ulps), tally)
    assert measured.instructions["trans"] > 0
    tally.assert_rare()


@pytest.mark.parametrize("key", [*FAMILY_KEYS, *OPTION_KEYS], ids=str)
def test_results_are_the_host_builds_bit_for_bit(
    key: Key, code: CodeObject, packed: dict[Key, Packed]
) -> None:
    case, on_host = key.build().arguments, key.build().arguments
    measured = execute(code, packed[key], case, HostTranscendentals())
    op.load()(*on_host.as_tuple())
    assert_same_as_host(case, on_host, packed[key])
    assert measured.round_trips_to_store <= ROUND_TRIPS, measured.table()


@pytest.mark.parametrize("key", KERNEL_KEYS, ids=str)
def test_every_kernel_gives_the_host_builds_bits(
    key: Key, code: CodeObject, packed: dict[Key, Packed]
) -> None:
    # Of a large batch some tokens: the first, some in the middle, the last.
    case, on_host = key.build().arguments, key.build().arguments
    op.load()(*on_host.as_tuple())
    launched = packed[key]
    tokens = sorted({0, key.tokens // 3, key.tokens // 2, key.tokens - 1})
    kernel = code.kernel(launched.launch.kernel)
    assert launched.launch.grid[0] == key.tokens
    measured = launch.run(
        kernel,
        launched.launch,
        launched.tensors(case),
        HostTranscendentals(),
        only_x=tokens,
    )
    assert case.k is not None and on_host.k is not None
    assert case.kv_cache is not None and on_host.kv_cache is not None
    compare.assert_same_bits("q", case.q[tokens], on_host.q[tokens])
    compare.assert_same_bits("k", case.k[tokens], on_host.k[tokens])
    for (token, row), (_, wanted) in zip(
        cases.cache_rows(case), cases.cache_rows(on_host), strict=True
    ):
        if token in tokens:
            compare.assert_same_bits(f"the cache's row of token {token}", row, wanted)
    assert measured.round_trips_to_store <= ROUND_TRIPS, measured.table()


def test_every_kernel_of_the_code_object_is_executed(
    code: CodeObject, packed: dict[Key, Packed]
) -> None:
    launched = {packed[key].launch.kernel for key in (*FAMILY_KEYS, *KERNEL_KEYS)}
    assert launched == set(code.kernels)


@pytest.mark.parametrize("key", ONE_OF_EACH, ids=str)
def test_waves_one_after_the_other_give_the_same_bits_as_in_step(
    key: Key, code: CodeObject, packed: dict[Key, Packed]
) -> None:
    in_step, in_turn = key.build().arguments, key.build().arguments
    launched = packed[key]
    kernel = code.kernel(launched.launch.kernel)
    launch.run(kernel, launched.launch, launched.tensors(in_step))
    launch.run(kernel, launched.launch, launched.tensors(in_turn), at_once=1)
    assert_same_memory(in_turn, in_step, launched)
