"""`make bench-e2e` without vLLM: the turns, the reading of a run's output, the table."""

from itertools import pairwise

import pytest

from scripts.bench import e2e
from scripts.errors import Fault


def test_neither_is_always_first() -> None:
    order = list(e2e.in_turns(5))
    assert order == ["on", "off", "off", "on", "on", "off", "off", "on", "on", "off"]
    assert {tuple(turn) for turn in pairwise(order[::2])} == {("on", "off"), ("off", "on")}


def test_times_of_each_kind_are_kept_apart() -> None:
    asked = []

    def run(fusion: str, batch: int) -> list[float]:
        asked.append((fusion, batch))
        return [4.0, 4.5] if fusion == "on" else [5.0, 5.5]

    result = e2e.measure(run, 8, 2)
    assert asked == [("on", 8), ("off", 8), ("off", 8), ("on", 8)]
    assert result == e2e.Result(8, on=[4.0, 4.5] * 2, off=[5.0, 5.5] * 2)
    assert result.ratio == pytest.approx(5.25 / 4.25)


def test_times_are_found_among_a_run_s_other_output() -> None:
    output = (
        'INFO {"milliseconds"\n{"milliseconds": [9.0]}\nINFO\n{"milliseconds": [4.5, 4.25]}\nbye\n'
    )
    assert e2e.parse(output) == [4.5, 4.25]


@pytest.mark.parametrize(
    "output", ["", "no times", '{"milliseconds": []}', '{"milliseconds": [4.5, -0.1]}']
)
def test_output_without_times_is_no_result(output: str) -> None:
    with pytest.raises(Fault):
        e2e.parse(output)


def test_table_shows_medians_spread_and_ratio() -> None:
    results = [e2e.Result(1, on=[4.0, 4.2, 4.1], off=[5.0, 5.1, 5.2])]
    text = e2e.markdown("some/model", "Radeon 8060S (gfx1151)", "2026-11-30", results)
    assert "| 1 | 5.100 (5.000 to 5.200) | 4.100 (4.000 to 4.200) | 1.244 | 3 |" in text
    assert "some/model on Radeon 8060S (gfx1151)" in text
