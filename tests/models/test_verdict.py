"""What makes a row of the models' table hold: each way of not holding is found."""

import dataclasses
import math
from typing import Any

import pytest
from e2e.catalogue import MODELS
from e2e.result import Difference, Flip, Result
from e2e.verdict import failures

QWEN3 = MODELS["qwen3"]
FUSED = {"layers.0": ["norm", "rotate", "write"], "layers.1": ["norm", "rotate", "write"]}


def _everywhere(*texts: list[int]) -> dict[str, list[list[int]]]:
    return {configuration: list(texts) for configuration in ("eager", "off", "on")}


HELD = Result(
    name="qwen3",
    model_class="Qwen3ForCausalLM",
    backends={"ROCM_ATTN": 2},
    texts=_everywhere([1, 2, 3, 4], [5, 6, 7, 8]),
    fused={"eager": {}, "off": {}, "on": FUSED},
    off_eager=Difference(prompt=0.2, everywhere=0.25),
    on_off=Difference(prompt=0.1, everywhere=0.4),
    faults=dict.fromkeys(QWEN3.faults, 3.0),
)


def _changed(**changes: Any) -> Result:
    return dataclasses.replace(HELD, **changes)


def test_a_row_that_is_as_it_must_be_holds() -> None:
    assert not failures(QWEN3, [HELD])
    assert not failures(QWEN3, [HELD, HELD])


def test_a_tie_that_flipped_holds_within_the_bound() -> None:
    flip = Flip(text=0, position=30, margin=0.1, difference=0.3)
    assert not failures(QWEN3, [_changed(on_off=Difference(0.1, 0.3, (flip,)))])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fused": {"eager": {}, "off": FUSED, "on": FUSED}}, "off: layers fused"),
        ({"fused": {"eager": FUSED, "off": {}, "on": FUSED}}, "eager: layers fused"),
        ({"fused": {"eager": {}, "off": {}, "on": {}}}, "fused nothing, expected"),
        (
            {"fused": {"eager": {}, "off": {}, "on": {"layers.0": FUSED["layers.0"]}}},
            "'QK norm': 1}, expected",
        ),
        (
            {
                "fused": {
                    "eager": {},
                    "off": {},
                    "on": {name: ["rotate", "write"] for name in FUSED},
                }
            },
            "'RoPE': 2}, expected",
        ),
        (
            {"texts": _everywhere([1, 2, 3, 4], [5, 6, 7, 1])},
            "only 7 different tokens",
        ),
        ({"on_off": Difference(0.1, 0.51)}, "on/off differ by 0.5100"),
        ({"on_off": Difference(0.1, math.nan)}, "on/off differ by nan"),
        ({"faults": {}}, "faults tried []"),
        ({"faults": {**HELD.faults, sorted(HELD.faults)[0]: 0.5}}, "fault not seen"),
    ],
)
def test_what_is_not_as_it_must_be_is_found(changes: dict[str, Any], words: str) -> None:
    found = failures(QWEN3, [_changed(**changes)])
    assert len(found) == 1, found
    assert words in found[0]


def test_processes_that_wrote_different_texts_are_found() -> None:
    other = _everywhere([1, 2, 3, 4], [5, 6, 7, 9])
    assert failures(QWEN3, [HELD, _changed(texts=other)]) == ["the processes have different texts"]


def test_a_nan_fault_is_seen_and_a_nan_yardstick_bounds_nothing() -> None:
    seen = _changed(faults=dict.fromkeys(QWEN3.faults, math.nan))
    assert not failures(QWEN3, [seen])
    blind = _changed(off_eager=Difference(math.nan, math.nan))
    assert failures(QWEN3, [blind])
