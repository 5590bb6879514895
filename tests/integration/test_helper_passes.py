"""The passes that rewrite RoPE's functionalized form, on graphs that are not the usual one.

What is wrong on the pristine tree is asked there too, so that each of these is a fault that this
series mends and not a property of the test.
"""

import pytest
from simulation import simulated

# The bodies of simulation/bodies.py: heads, width of the projection, and what the pristine tree
# makes of them with the fusion's passes, and with nothing but the rotary_embedding op on.
GRAPHS: dict[str, tuple[tuple[int, int, int], int, str, str]] = {
    "gate_first": ((4, 2, 64), 12 * 64, "crashes", "right"),
    "rotated_q_twice": ((4, 2, 64), 8 * 64, "crashes", "right"),
    "v_apart": ((4, 2, 64), 6 * 64, "crashes", "wrong"),
    "v_first": ((2, 2, 64), 6 * 64, "wrong", "right"),
    "k_first": ((4, 2, 64), 8 * 64, "crashes", "right"),
    "equal_parts": ((2, 2, 64), 6 * 64, "right", "right"),
    "raw_q_later": ((4, 2, 64), 8 * 64, "wrong", "wrong"),
    "raw_qkv_later": ((4, 2, 64), 8 * 64, "wrong", "wrong"),
    "raw_k_view_later": ((4, 2, 64), 8 * 64, "wrong", "wrong"),
}


def outcomes(names: list[str], fusions: bool, custom_op: str) -> dict[str, str]:
    """ "right", "wrong: ..." or "crashes: ..." by the body, all in one graph."""
    from simulation import bodies
    from simulation.prologues import Prologue, fusing_config, run
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    config = fusing_config(custom_ops=(custom_op,), rope=fusions, qk_norm=False)
    layers = [
        Prologue(
            config,
            *GRAPHS[name][0],
            width=GRAPHS[name][1],
            body=getattr(bodies, name),
            name=f"model.layers.{i}.{name}",
            # The same attention on both trees.
            attn_backend=AttentionBackendEnum.TRITON_ATTN.get_class(),
        )
        for i, name in enumerate(names)
    ]
    try:
        faults = run(config, layers).faults()
    except Exception as e:
        return dict.fromkeys(names, f"crashes: {type(e).__name__}: {str(e).splitlines()[0]}")
    return {
        name: f"wrong: {faults[layer.name]}" if layer.name in faults else "right"
        for name, layer in zip(names, layers, strict=True)
    }


@simulated(arch="gfx942")
@pytest.mark.parametrize("custom_op", ["+rotary_embedding", "-rotary_embedding"])
@pytest.mark.parametrize("fusions", [True, False])
def test_graphs_that_are_not_the_usual_one_stay_right(fusions: bool, custom_op: str) -> None:
    found = outcomes(list(GRAPHS), fusions, custom_op)
    assert found == dict.fromkeys(GRAPHS, "right")


@simulated(arch="gfx942", tree="pristine")
def pristine_with_the_passes() -> dict[str, str]:
    return {name: outcomes([name], True, "+rotary_embedding")[name] for name in GRAPHS}


@simulated(arch="gfx942", tree="pristine")
def pristine_with_the_op_alone() -> dict[str, str]:
    return outcomes(list(GRAPHS), False, "+rotary_embedding")


@simulated(arch="gfx942", tree="pristine")
def pristine_without_the_op() -> dict[str, str]:
    return outcomes(list(GRAPHS), False, "-rotary_embedding")


def test_upstream_goes_wrong_there() -> None:
    found = pristine_with_the_passes.on()
    kinds = {name: text.split(":")[0] for name, text in found.items()}
    assert kinds == {name: GRAPHS[name][2] for name in GRAPHS}, found


def test_upstream_goes_wrong_there_with_the_op_alone() -> None:
    found = pristine_with_the_op_alone.on()
    kinds = {name: text.split(":")[0] for name, text in found.items()}
    assert kinds == {name: GRAPHS[name][3] for name in GRAPHS}, found
    assert pristine_without_the_op.on() == dict.fromkeys(GRAPHS, "right")
