"""What was measured of one model. Plain data, on both sides."""

import math
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Flip:
    """A greedy token that is another with the fusion on.

    margin: between the two most likely tokens' log-probabilities, with the fusion off.
    difference: the largest on/off difference of the log-probabilities there.
    """

    text: int
    position: int
    margin: float
    difference: float

    def __str__(self) -> str:
        return (
            f"text {self.text} position {self.position}: "
            f"margin {self.margin:.3f}, difference {self.difference:.3f}"
        )


@dataclass(frozen=True)
class Difference:
    """Two configurations' log-probabilities, over all of the vocabulary.

    prompt: largest difference at the prompts' positions; everywhere: at all positions that both
    computed after the same tokens. NaN where one of them is. flips: the first of each text.
    """

    prompt: float
    everywhere: float
    flips: tuple[Flip, ...] = ()


@dataclass
class Result:
    """One model's row.

    model_class, backends: what vLLM made of the config. eager, off, on: the new tokens of each
    text. fused: configuration -> layer -> what its launches did. off_eager, on_off: differences.
    faults: fault -> the prompts' largest difference from off. drafted, accepted: draft tokens with
    the fusion on. seconds: for each configuration.
    """

    name: str
    model_class: str
    backends: dict[str, int]
    texts: dict[str, list[list[int]]]
    fused: dict[str, dict[str, list[str]]]
    off_eager: Difference
    on_off: Difference
    faults: dict[str, float] = field(default_factory=dict)
    drafted: int = 0
    accepted: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def bound(self) -> float:
        """What on/off may differ by: twice what compiling alone makes."""
        return 2 * max(self.off_eager.everywhere, self.off_eager.prompt)


def exceeds(difference: float, bound: float) -> bool:
    """Whether it does; a NaN is more than any bound."""
    return math.isnan(difference) or difference > bound
