"""Instructions whose pseudo-code leaves something open or is beyond the compiler (pcode.py).

Each takes and gives what compiled pseudo-code does: bits of S0, S1, S2, D0 by name.
"""

from typing import Any

import numpy as np

from tests.gfx1151.emulator import floats
from tests.gfx1151.emulator.floats import Array, Transcendentals
from tests.gfx1151.emulator.pcode import Compiled, Outputs

Inputs = dict[str, Array]


def _div_scale_f32(inputs: Inputs, trans: Transcendentals) -> Outputs:
    """The first step of a division S2 / S1: S0 is one of the two, scaled where the steps that
    follow would meet denormals. The pseudo-code leaves out that S0 passes through otherwise, and
    that VCC is the lane's; its "denormal" of 1 / S1 is that of fp32."""
    s0, s1, s2 = (inputs[name].view(np.float32) for name in ("S0", "S1", "S2"))
    s0, s1, s2 = np.broadcast_arrays(s0, s1, s2)
    up, down = floats.scale(s0, np.array([64])), floats.scale(s0, np.array([-64]))
    far = floats.exponent_of(s2) - floats.exponent_of(s1) >= 96
    inverse = floats.is_denormal((1.0 / s1.astype(np.float64)).astype(np.float32))
    quotient = floats.is_denormal((s2.astype(np.float64) / s1).astype(np.float32))
    denominator, numerator = s0 == s1, s0 == s2
    cases: list[tuple[Array, Array, bool]] = [
        ((s2 == 0) | (s1 == 0), np.full(s0.shape, np.nan, np.float32), False),
        (far, np.where(denominator, up, s0), True),
        (floats.is_denormal(s1), up, False),
        (inverse & quotient, np.where(denominator, up, s0), True),
        (inverse, down, False),
        (quotient, np.where(numerator, up, s0), True),
        (floats.exponent_of(s2) <= 23, up, False),
    ]
    conditions = [condition for condition, _, _ in cases]
    scaled = np.select(conditions, [value for _, value, _ in cases], s0)
    vcc = np.select(conditions, [np.full(s0.shape, flag) for _, _, flag in cases], False)
    return {"D0": scaled.astype(np.float32).view(np.uint32), "VCC_lanes": vcc.astype(bool)}


def _div_fmas_f32(inputs: Inputs, trans: Transcendentals) -> Outputs:
    """The last fma of a division, scaled back where v_div_scale set VCC. It scales by 2 ** 64; the
    pseudo-code has 2 ** 32 here, with which no such quotient comes out right. Up where the
    denominator was scaled up (the quotient so far, S2, is large), down where the numerator was."""
    s0, s1, s2 = (inputs[name].view(np.float32) for name in ("S0", "S1", "S2"))
    plain = floats.fma(s0, s1, s2)
    power = np.where(floats.exponent_of(s2) > 127, 64, -64)
    scaled = np.where(inputs["VCC_lanes"], floats.scale(plain, power), plain)
    return {"D0": scaled.view(np.uint32)}


def _mad_64(signed: bool) -> Compiled:
    """S0 * S1 + S2, 32 by 32 to 64 bits, and the carry out of it."""

    def run(inputs: Inputs, trans: Transcendentals) -> Outputs:
        narrow, wide = (np.int32, np.int64) if signed else (np.uint32, np.uint64)
        a = inputs["S0"].view(narrow).astype(wide)
        b = inputs["S1"].view(narrow).astype(wide)
        product, c = (a * b).view(np.uint64), inputs["S2"]
        total = product + c
        if signed:
            x, y, z = product.view(np.int64), c.view(np.int64), total.view(np.int64)
            carry = ((x < 0) == (y < 0)) & ((z < 0) != (x < 0))
        else:
            carry = total < c
        return {"D0": total, "VCC_lanes": carry}

    return run


def _extreme(dtype: Any, largest: bool) -> Compiled:
    """Minimum or maximum in IEEE mode: a signalling NaN gives that NaN, quiet; of a quiet NaN and a
    number, the number; -0 is below +0."""

    def run(inputs: Inputs, trans: Transcendentals) -> Outputs:
        unsigned = f"u{np.dtype(dtype).itemsize}"
        a, b = (inputs[name].astype(unsigned).view(dtype) for name in ("S0", "S1"))
        return {"D0": floats.extreme(a, b, largest).view(unsigned)}

    return run


def _perm_b32(inputs: Inputs, trans: Transcendentals) -> Outputs:
    """Each byte of S2 chooses a byte of {S0, S1}, a sign spread over a byte, 0 or 0xff."""
    s0, s1, s2 = np.broadcast_arrays(inputs["S0"], inputs["S1"], inputs["S2"])
    data = s0.astype(np.uint64) << np.uint64(32) | s1
    result = np.zeros(s0.shape, np.uint32)
    for byte in range(4):
        selector = s2 >> np.uint32(8 * byte) & np.uint32(0xFF)
        shift = np.uint64(8) * (selector & np.uint32(7)).astype(np.uint64)
        plain = (data >> shift & np.uint64(0xFF)).astype(np.uint32)
        sign_of = np.uint64(16) * (selector & np.uint32(3)).astype(np.uint64) + np.uint64(15)
        sign = np.where(data >> sign_of & np.uint64(1), 0xFF, 0)
        chosen = np.select(
            [selector >= 13, selector == 12, selector >= 8],
            [np.uint32(0xFF), np.uint32(0), sign],
            plain,
        )
        result |= chosen.astype(np.uint32) << np.uint32(8 * byte)
    return {"D0": result}


WRITTEN_OUT: dict[str, Compiled] = {
    "V_DIV_SCALE_F32": _div_scale_f32,
    "V_DIV_FMAS_F32": _div_fmas_f32,
    "V_MAD_U64_U32": _mad_64(signed=False),
    "V_MAD_I64_I32": _mad_64(signed=True),
    "V_PERM_B32": _perm_b32,
    **{
        f"{prefix}_{name}_F{bits}": _extreme(dtype, name == "MAX")
        for prefix in ("V", "S")
        for name in ("MIN", "MAX")
        for bits, dtype in ((16, np.float16), (32, np.float32))
    },
}
