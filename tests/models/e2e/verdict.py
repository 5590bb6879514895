"""What a row must show, and what is wrong with it where it does not."""

import collections
from collections.abc import Sequence

from e2e.catalogue import MROPE, NORM, NORM_MROPE, NORM_OFFSET, NORM_V, ROPE, ROPE_SCALED, Model
from e2e.result import Result, exceeds

FEWEST_DIFFERENT_TOKENS = 8


def kind_of(launch: list[str]) -> str:
    """What a fused layer's launches did, as the catalogue names it."""
    if "M-RoPE" in launch:
        return NORM_MROPE if "norm" in launch else MROPE
    if "norm" not in launch:
        return ROPE_SCALED if "scaling" in launch else ROPE
    if "V norm" in launch:
        return NORM_V
    return NORM_OFFSET if "offset" in launch else NORM


def fused_counts(result: Result, configuration: str) -> dict[str, int]:
    """How many layers fused, by what their launches did."""
    return dict(collections.Counter(map(kind_of, result.fused[configuration].values())))


def failures(model: Model, results: Sequence[Result]) -> list[str]:
    """What is not as it must be in any process; empty for a row that holds."""
    found = [failure for result in results for failure in _failures(model, result)]
    if any(result.texts != results[0].texts for result in results):
        found.append("the processes have different texts")
    return list(dict.fromkeys(found))


def _failures(model: Model, result: Result) -> list[str]:
    found = []
    for configuration in ("eager", "off"):
        if result.fused[configuration]:
            found.append(f"{configuration}: layers fused: {sorted(result.fused[configuration])}")
    if (counts := fused_counts(result, "on")) != dict(model.fused):
        found.append(f"fused {counts or 'nothing'}, expected {dict(model.fused) or 'nothing'}")
    different = {token for text in result.texts["on"] for token in text}
    if model.generates and len(different) < FEWEST_DIFFERENT_TOKENS:
        found.append(f"only {len(different)} different tokens in the text")
    if exceeds(result.on_off.everywhere, result.bound):
        found.append(
            f"on/off differ by {result.on_off.everywhere:.4f}, more than twice off/eager's "
            f"{result.off_eager.everywhere:.4f}"
        )
    if set(result.faults) != model.faults:
        found.append(f"faults tried {sorted(result.faults)}, expected {sorted(model.faults)}")
    for fault, difference in result.faults.items():
        if not exceeds(difference, result.bound):
            found.append(f"fault not seen: {fault} ({difference:.4f}, bound {result.bound:.4f})")
    return found
