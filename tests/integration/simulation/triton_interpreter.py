"""What Triton's interpreter gets wrong of vLLM's kernels, put right.

It keeps bfloat16 as its 16 bits in numpy's uint16, and multiplies and adds those as integers.
Tensors that a kernel's grid function puts among the arguments reach the kernel as they are. A mask
must be of bool, where the compiler takes any integer. The variable of a loop over a tensor's range
is Python's integer. Functions of the language that a module has imported by name stay the
compiler's. Choosing among a kernel's configurations by time needs a GPU.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from triton import language as tl
from triton.runtime import interpreter
from triton.runtime.autotuner import Autotuner
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


def correct_interpreter() -> None:
    """Put all that right; of a kernel's configurations the first is taken."""
    _correct_bfloat16()
    _correct_launches()
    _correct_masks()
    for name in ("exp", "exp2", "log", "log2"):
        setattr(tl, name, _interpreted(getattr(tl, name)))
    autotuner: Any = Autotuner
    autotuner._bench = lambda *_, **__: 0.0


def _correct_bfloat16() -> None:
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


def _correct_launches() -> None:
    executor: Any = interpreter.GridExecutor
    call = executor.__call__

    def __call__(self: Any, *args: Any, **kwargs: Any) -> None:
        if callable(self.grid):
            self.grid = _converting(self.grid)
        self.fn.__globals__["range"] = _range
        call(self, *args, **kwargs)

    executor.__call__ = __call__


def _converting(grid: Callable[[dict[str, Any]], tuple[int, ...]]) -> Callable[..., Any]:
    def call(arguments: dict[str, Any]) -> tuple[int, ...]:
        size = grid(arguments)
        for name, argument in arguments.items():
            if isinstance(argument, torch.Tensor):
                arguments[name] = interpreter._implicit_cvt(argument)
        return size

    return call


def _range(*bounds: Any) -> Any:
    """Python's range, of tensors where a bound is one."""
    if not any(isinstance(bound, tl.tensor) for bound in bounds):
        return range(*bounds)
    return map(interpreter._implicit_cvt, range(*bounds))


def _correct_masks() -> None:
    builder: Any = interpreter.InterpreterBuilder
    load, store = builder.create_masked_load, builder.create_masked_store

    def create_masked_load(self: Any, ptrs: Any, mask: TensorHandle, *rest: Any) -> TensorHandle:
        return load(self, ptrs, _as_bool(mask), *rest)

    def create_masked_store(
        self: Any, ptrs: Any, value: Any, mask: TensorHandle, *rest: Any
    ) -> None:
        store(self, ptrs, value, _as_bool(mask), *rest)

    builder.create_masked_load = create_masked_load
    builder.create_masked_store = create_masked_store


def _as_bool(mask: TensorHandle) -> TensorHandle:
    return TensorHandle(mask.data.astype(np.bool_), tl.int1)


def _interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of the language, which the interpreter runs where nobody says who does."""

    @functools.wraps(function)
    def call(*args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        semantic = _semantic or interpreter.interpreter_semantic
        return function(*args, _semantic=semantic, **kwargs)

    return call
