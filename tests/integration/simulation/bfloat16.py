"""Triton's interpreter with bfloat16 as a number.

It keeps bfloat16 as its 16 bits in numpy's uint16, and multiplies and adds those as integers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from triton import language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

_OPERANDS = {
    "unary_op": 1,
    "create_erf": 1,
    "create_rsqrt": 1,
    "binary_op": 2,
    "ternary_op": 3,
    "create_fma": 3,
}


def _is_bfloat16(handle: TensorHandle) -> bool:
    return handle.dtype.scalar == tl.bfloat16


def _widened(handle: TensorHandle) -> TensorHandle:
    """The same values in fp32, if they are bfloat16."""
    if not _is_bfloat16(handle):
        return handle
    return TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)


def correct_bfloat16() -> None:
    """Compute in fp32 where an operand is bfloat16, and round what is bfloat16 again."""
    builder: Any = interpreter.InterpreterBuilder
    for name, operands in _OPERANDS.items():
        setattr(builder, name, _rounding(getattr(builder, name), operands))
    dot = builder.create_dot

    def create_dot(self: Any, a: TensorHandle, b: TensorHandle, *rest: Any) -> TensorHandle:
        return dot(self, _widened(a), _widened(b), *rest)

    builder.create_dot = create_dot


def _rounding(method: Callable[..., TensorHandle], operands: int) -> Callable[..., TensorHandle]:
    def call(self: Any, *args: Any) -> TensorHandle:
        handles = args[:operands]
        if not any(map(_is_bfloat16, handles)):
            return method(self, *args)
        result = method(self, *map(_widened, handles), *args[operands:])
        if result.data.dtype != np.float32:  # a comparison's
            return TensorHandle(result.data, tl.bfloat16)
        return self.cast_impl(result, tl.bfloat16)

    return call
