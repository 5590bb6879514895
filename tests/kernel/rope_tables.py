"""The cos/sin tables of the model families, from the published formulas alone.

Used where vLLM is not at hand; a test holds them against vLLM's own modules.
"""

import dataclasses
import functools
import math

import torch


@dataclasses.dataclass(frozen=True)
class Rope:
    """One kind of RoPE: how the angles of a table come about.

    rotary_dim: rotated elements of a head. rows: rows of the table that a case
    needs (positions of the model beyond them are not built).
    """

    rotary_dim: int
    base: float = 10000.0
    rows: int = 4096

    def inverse_frequencies(self) -> torch.Tensor:
        """Radians per position of each rotated pair, fp32 [rotary_dim / 2]."""
        exponent = torch.arange(0, self.rotary_dim, 2).float() / self.rotary_dim
        return 1.0 / self.base**exponent

    def magnitude(self) -> float:
        """What cos and sin are multiplied with."""
        return 1.0

    def table(self) -> torch.Tensor:
        """cos half then sin half of every row, fp32 [rows, rotary_dim]."""
        return _angles_to_table(self.rows, self.inverse_frequencies(), self.magnitude())


@dataclasses.dataclass(frozen=True)
class LinearRope(Rope):
    """Positions divided by a factor."""

    factor: float = 1.0

    def table(self) -> torch.Tensor:
        position = torch.arange(self.rows).float() / self.factor
        angle = position[:, None] * self.inverse_frequencies()
        return torch.cat([angle.cos(), angle.sin()], dim=-1)


@dataclasses.dataclass(frozen=True)
class Llama3Rope(Rope):
    """Long wavelengths slowed by a factor, short ones kept, a ramp between."""

    factor: float = 8.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 8192

    def inverse_frequencies(self) -> torch.Tensor:
        fast = super().inverse_frequencies()
        turns = self.original_max_position * fast / (2 * math.pi)
        span = self.high_freq_factor - self.low_freq_factor
        keep = ((turns - self.low_freq_factor) / span).clamp(0, 1)
        return keep * fast + (1 - keep) * fast / self.factor


@dataclasses.dataclass(frozen=True)
class YarnRope(Rope):
    """YaRN: a ramp over the pairs between interpolation and extrapolation, and
    a magnitude that grows with the factor (1 where two mscales cancel)."""

    factor: float = 16.0
    original_max_position: int = 16384
    beta_fast: int = 32
    beta_slow: int = 1
    mscales_cancel: bool = False

    def _pair_with_turns(self, turns: float) -> float:
        """The (fractional) pair that turns so often in the original context."""
        wavelength = self.original_max_position / (2 * math.pi * turns)
        return self.rotary_dim * math.log(wavelength) / (2 * math.log(self.base))

    def inverse_frequencies(self) -> torch.Tensor:
        fast = super().inverse_frequencies()
        low = max(math.floor(self._pair_with_turns(self.beta_fast)), 0)
        high = min(math.ceil(self._pair_with_turns(self.beta_slow)), self.rotary_dim - 1)
        pair = torch.arange(self.rotary_dim // 2).float()
        interpolate = ((pair - low) / (high - low)).clamp(0, 1)
        return interpolate * fast / self.factor + (1 - interpolate) * fast

    def magnitude(self) -> float:
        return 1.0 if self.mscales_cancel else 0.1 * math.log(self.factor) + 1.0


@dataclasses.dataclass(frozen=True)
class LongRope(Rope):
    """Phi's LongRoPE: a table of short factors for the original context, then
    one of long factors; the op's pos_offset chooses the second."""

    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()
    original_max_position: int = 4096
    max_position: int = 131072

    def magnitude(self) -> float:
        growth = self.max_position / self.original_max_position
        return math.sqrt(1 + math.log(growth) / math.log(self.original_max_position))

    def table(self) -> torch.Tensor:
        plain = self.inverse_frequencies()
        long_rows = self.rows - self.original_max_position
        return torch.cat(
            [
                _angles_to_table(rows, plain / torch.tensor(factor), self.magnitude())
                for rows, factor in (
                    (self.original_max_position, self.short_factor),
                    (long_rows, self.long_factor),
                )
            ]
        )


@dataclasses.dataclass(frozen=True)
class ProportionalRope(Rope):
    """Gemma 4's: exponents over the whole head, angle 0 for the pairs that do
    not rotate. rotary_dim is the head_dim."""

    rotating_pairs: int = 64

    def inverse_frequencies(self) -> torch.Tensor:
        inverse = super().inverse_frequencies()
        inverse[self.rotating_pairs :] = 0
        return inverse


@functools.lru_cache(maxsize=32)
def cos_sin_table(rope: Rope, dtype: torch.dtype) -> torch.Tensor:
    """The table as a model keeps it: rounded to the activations' dtype."""
    return rope.table().to(dtype)


def _angles_to_table(
    rows: int, inverse_frequencies: torch.Tensor, magnitude: float
) -> torch.Tensor:
    angle = torch.arange(rows).float()[:, None] * inverse_frequencies
    return torch.cat([angle.cos() * magnitude, angle.sin() * magnitude], dim=-1)
