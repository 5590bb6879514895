"""AMD's pseudo-code, compiled to Python functions over numpy arrays of lanes.

An instruction's pseudo-code (tinygrad carries it as text) reads sources S0, S1, S2, the old
destination D0 and the carry or mask of lanes VCC, and assigns D0, SCC or masks. Here it becomes a
function from arrays of raw bits, one element a lane (or one in all for scalar instructions), to the
arrays that it assigned. A branch on a value that differs between lanes becomes a choice per lane.
"""

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.gfx1151.emulator import floats
from tests.gfx1151.emulator.errors import Unknown
from tests.gfx1151.emulator.floats import Array, Transcendentals

# What a compiled instruction may be given and may assign. *_lanes: an element for each lane.
INPUTS = ("S0", "S1", "S2", "D0", "SCC", "VCC_lanes", "EXEC", "SIMM16", "SIMM32")
OUTPUTS = ("D0", "D0_lanes", "VCC_lanes", "EXEC_lanes", "SCC", "EXEC")

Outputs = dict[str, Array]
Compiled = Callable[[dict[str, Array], Transcendentals], Outputs]

_DTYPES: dict[str, Any] = {
    **{f"u{n}": getattr(np, f"uint{n}") for n in (8, 16, 32, 64)},
    **{f"i{n}": getattr(np, f"int{n}") for n in (8, 16, 32, 64)},
    **{f"b{n}": getattr(np, f"uint{n}") for n in (8, 16, 32, 64)},
    **{f"f{n}": getattr(np, f"float{n}") for n in (16, 32, 64)},
}
_TOKEN = re.compile(
    r"\s*(?:(?P<sized>\d+'(?:[0-9]+(?:\.\d+|U)?|[UIFB]))|(?P<hex>0x[0-9a-fA-F]+)(?P<hexsuffix>ULL|LL|U)?"
    r"|(?P<float>\d+\.\d+)(?P<floatsuffix>F)?|(?P<int>\d+)(?P<intsuffix>ULL|LL|U|F)?"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<op>\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||\+=|-=|[-+*/%&|^~!<>=?:.,()\[\]{}]))"
)
_KEYWORDS = {
    "if",
    "then",
    "elsif",
    "else",
    "endif",
    "for",
    "in",
    "do",
    "endfor",
    "declare",
    "break",
}


@dataclasses.dataclass(frozen=True)
class _Value:
    """Python code of an expression, and its type: one of _DTYPES, "bool", "int" (a literal
    without a type) or "pow2" (2 to the power of the code's value)."""

    code: str
    type: str


@functools.cache
def compile_pcode(name: str, text: str) -> Compiled:
    """The function of an instruction's pseudo-code.

    Raises Unknown, naming the instruction, for pseudo-code with something that has no meaning here.
    """
    try:
        source = _Compiler(text).source()
        scope: dict[str, Any] = {"np": np, "floats": floats, "h": _Helpers}
        exec(compile(source, f"<pseudo-code of {name}>", "exec"), scope)
    except (_Unsupported, SyntaxError) as error:
        raise Unknown(f"{name} is not executed: {error} in its pseudo-code: {text}") from error
    run: Compiled = scope["run"]
    return run


class _Unsupported(Exception):
    pass


class _Helpers:
    """What compiled code calls. Booleans are arrays of bool; bits are unsigned arrays."""

    @staticmethod
    def bits(x: Array) -> Array:
        """A value as unsigned bits of its own width."""
        if x.dtype == np.bool_:
            return x.astype(np.uint32)
        return x.view(f"u{x.itemsize}")

    @staticmethod
    def retype(x: Array, dtype: Any) -> Array:
        """The low bits of a value, read as another type."""
        bits = _Helpers.bits(x)
        size = np.dtype(dtype).itemsize
        if bits.itemsize != size:
            bits = bits.astype(f"u{size}")
        return bits.view(dtype)

    @staticmethod
    def cast(x: Array, dtype: Any) -> Array:
        """A value converted to another type."""
        if np.issubdtype(x.dtype, np.floating) and np.issubdtype(dtype, np.floating):
            return floats.convert(x, dtype)
        if np.issubdtype(x.dtype, np.floating):
            return floats.to_integer(x, dtype)
        return x.astype(dtype)

    @staticmethod
    def field(x: Array, high: int, low: int) -> Array:
        """Bits high to low of a value, as the smallest type that has them."""
        width = high - low + 1
        bits = _Helpers.bits(x)
        if low:
            bits = bits >> bits.dtype.type(low)
        if width < 8 * bits.itemsize:
            bits = bits & bits.dtype.type((1 << width) - 1)
        return bits.astype(np.uint64 if width > 32 else np.uint32 if width > 16 else np.uint16)

    @staticmethod
    def insert(x: Array, high: int, low: int, value: Array) -> Array:
        """x with bits high to low replaced."""
        bits = _Helpers.bits(x)
        if 8 * bits.itemsize <= high:
            bits = bits.astype(np.uint64 if high > 31 else np.uint32)
        mask = ((1 << (high - low + 1)) - 1) << low
        kind = bits.dtype.type
        new = _Helpers.bits(value).astype(bits.dtype) << kind(low)
        return (bits & kind(~mask & ((1 << 8 * bits.itemsize) - 1))) | (new & kind(mask))

    @staticmethod
    def shift_left(x: Array, by: Array) -> Array:
        """x << by; nothing is left of it when by is the width or more."""
        far = by >= 8 * x.itemsize
        return np.where(far, x.dtype.type(0), x << np.where(far, 0, by).astype(x.dtype))

    @staticmethod
    def shift_right(x: Array, by: Array) -> Array:
        """x >> by, with the sign for signed types."""
        return x >> np.minimum(by, 8 * x.itemsize - 1).astype(x.dtype)

    @staticmethod
    def sign(x: Array) -> Array:
        """Whether the sign bit is set."""
        return np.signbit(x)

    @staticmethod
    def fract(x: Array) -> Array:
        """x - floor(x), below 1."""
        below_one = np.nextafter(x.dtype.type(1), x.dtype.type(0))
        return np.minimum(x - np.floor(x), below_one)


# Functions of the pseudo-code: the code, and the type of the result (None: of the first argument).
_FUNCTIONS: dict[str, tuple[str, str | None]] = {
    "fma": ("floats.fma({0}, {1}, {2})", None),
    "f32_to_f16": ("floats.convert({0}, np.float16)", "f16"),
    "f16_to_f32": ("floats.convert({0}, np.float32)", "f32"),
    "f32_to_f64": ("floats.convert({0}, np.float64)", "f64"),
    "f64_to_f32": ("floats.convert({0}, np.float32)", "f32"),
    "u32_to_f32": ("{0}.astype(np.float32)", "f32"),
    "i32_to_f32": ("{0}.astype(np.float32)", "f32"),
    "u16_to_f16": ("{0}.astype(np.float16)", "f16"),
    "i16_to_f16": ("{0}.astype(np.float16)", "f16"),
    "f32_to_u32": ("floats.to_integer({0}, np.uint32)", "u32"),
    "f32_to_i32": ("floats.to_integer({0}, np.int32)", "i32"),
    "f16_to_u16": ("floats.to_integer({0}, np.uint16)", "u16"),
    "f16_to_i16": ("floats.to_integer({0}, np.int16)", "i16"),
    "trunc": ("np.trunc({0})", None),
    "floor": ("np.floor({0})", None),
    "fract": ("h.fract({0})", None),
    "abs": ("np.abs({0})", None),
    "isNAN": ("np.isnan({0})", "bool"),
    "cvtToQuietNAN": ("floats.quiet({0})", None),
    "sign": ("h.sign({0})", "bool"),
    "exponent": ("floats.exponent_of({0})", "i32"),
    "ldexp": ("floats.scale({0}, {1})", None),
    "v_min_f32": ("np.fmin({0}, {1})", None),
    "v_max_f32": ("np.fmax({0}, {1})", None),
    "v_min_i32": ("np.minimum({0}, {1})", None),
    "v_max_i32": ("np.maximum({0}, {1})", None),
    "v_min_u32": ("np.minimum({0}, {1})", None),
    "v_max_u32": ("np.maximum({0}, {1})", None),
    "v_min_i16": ("np.minimum({0}, {1})", None),
    "v_max_i16": ("np.maximum({0}, {1})", None),
    "v_min_u16": ("np.minimum({0}, {1})", None),
    "v_max_u16": ("np.maximum({0}, {1})", None),
}
# Those with a result that the hardware approximates.
_APPROXIMATED = {"log2", "exp2", "sqrt"}
_CONSTANTS = {
    "INF": "np.inf",
    "NAN": "np.nan",
    "UNDERFLOW_F32": "0.0",
    "OVERFLOW_F32": "np.inf",
}
_PRECEDENCE: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!=", "<>"),
    ("<", "<=", ">", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
    ("**",),
)


class _Compiler:
    """Compiles one text. Variables of the pseudo-code are Python variables named v_NAME."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._lines: list[str] = []
        self._types: dict[str, str] = {}
        self._masks: list[str] = []
        self._made = 0
        self._assigned: set[str] = set()
        self._used: set[str] = set()

    def source(self) -> str:
        self._statements(set())
        if self._peek():
            raise _Unsupported(f"{self._peek()!r}")
        lines = ["def run(inputs, trans):"]
        lines += [f"    v_{name} = inputs[{name!r}]" for name in sorted(self._used)]
        lines += [f"    {line}" for line in self._lines]
        results = ", ".join(f"{name!r}: v_{name}" for name in sorted(self._assigned))
        return "\n".join([*lines, f"    return {{{results}}}", ""])

    # Tokens

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ""

    def _take(self, expected: str | None = None) -> str:
        token = self._peek()
        if expected is not None and token != expected:
            raise _Unsupported(f"{token!r} where {expected!r} was expected")
        self._at += 1
        return token

    def _skip(self, token: str) -> bool:
        if self._peek() == token:
            self._at += 1
            return True
        return False

    # Statements

    def _statements(self, ends: set[str]) -> None:
        while self._peek() and self._peek() not in ends:
            self._statement()

    def _statement(self) -> None:
        token = self._peek()
        if token == ";":
            self._take()
        elif token == "if":
            self._if()
        elif token == "for":
            self._for()
        elif token == "declare":
            raise _Unsupported("a declaration")
        elif token == "break":
            self._take()
            self._emit(f"v_running = v_running & ~({self._mask()})")
        elif token == "{":
            raise _Unsupported("an assignment to a concatenation")
        else:
            self._assignment()

    def _emit(self, line: str) -> None:
        self._lines.append(line)

    def _new(self) -> str:
        self._made += 1
        return f"t{self._made}"

    def _mask(self) -> str:
        return " & ".join(self._masks) if self._masks else "np.ones(1, bool)"

    def _if(self) -> None:
        self._take("if")
        before: list[str] = []
        while True:
            condition = self._truth(self._expression())
            self._take("then")
            mask = self._new()
            self._emit(f"{mask} = {' & '.join([*before, condition])}")
            self._masks.append(mask)
            self._statements({"elsif", "else", "endif"})
            self._masks.pop()
            before.append(f"~({condition})" if condition.isidentifier() else f"~{mask}")
            if self._skip("elsif"):
                continue
            break
        if self._skip("else"):
            mask = self._new()
            self._emit(f"{mask} = {' & '.join(before)}")
            self._masks.append(mask)
            self._statements({"endif"})
            self._masks.pop()
        self._take("endif")

    def _for(self) -> None:
        self._take("for")
        name = self._take()
        self._take("in")
        first = self._constant()
        self._take(":")
        last = self._constant()
        self._take("do")
        body = self._at
        self._emit("v_running = np.ones(1, bool)")
        self._masks.append("v_running")
        for i in range(first, last + 1):
            self._at = body
            self._types[name] = "int"
            self._emit(f"v_{name} = {i}")
            self._statements({"endfor"})
        self._masks.pop()
        self._take("endfor")

    def _constant(self) -> int:
        value = self._expression()
        try:
            return int(value.code, 0)
        except ValueError:
            raise _Unsupported(f"the bound {value.code}") from None

    def _assignment(self) -> None:
        name = self._take()
        if not name.isidentifier() or name in _KEYWORDS:
            raise _Unsupported(f"{name!r}")
        kind: str | None = None
        span: tuple[int, int] | None = None
        while self._peek() in (".", "["):
            if self._skip("."):
                kind = self._take()
            else:
                self._take("[")
                if self._peek() == "laneId":
                    self._take()
                    name, kind = f"{name}_lanes", "bool"
                else:
                    high = self._constant()
                    low = self._constant() if self._skip(":") else high
                    span = (high, low)
                self._take("]")
        operator = self._take()
        if operator not in ("=", "+=", "-="):
            raise _Unsupported(f"{operator!r} after {name}")
        value = self._expression()
        if operator != "=":
            if span is not None or name not in self._types:
                raise _Unsupported(operator)
            before = _Value(f"v_{name}", self._types[name])
            if kind:
                before = self._as(before, kind)
            value = self._combine(operator[0], before, value)
        output = name in OUTPUTS
        if span is not None:
            self._know(name)
            typed = self._as(value, kind) if kind else value
            old = f"v_{name}" if name in self._types else "np.zeros(1, np.uint64)"
            code = f"h.insert({old}, {span[0]}, {span[1]}, {self._array(typed).code})"
            kind = "b64" if span[0] > 31 or self._types.get(name) == "b64" else "b32"
        elif name in ("SCC",) or (kind == "bool"):
            code, kind = self._truth(value), "bool"
        elif name in ("VCC", "EXEC") and kind is None:
            raise _Unsupported(f"an assignment to all of {name}")
        else:
            typed = self._as(value, kind) if kind else self._array(value)
            code, kind = typed.code, typed.type
        if self._masks:
            self._know(name)
            if name not in self._types:
                raise _Unsupported(f"{name} assigned under a condition alone")
            old = f"h.retype(v_{name}, np.{_np(kind)})" if kind in _DTYPES else f"v_{name}"
            code = f"np.where({self._mask()}, {code}, {old})"
        self._emit(f"v_{name} = {code}")
        self._types[name] = kind
        if output:
            self._assigned.add(name)

    def _know(self, name: str) -> None:
        """A variable that comes from outside is read."""
        if name in self._types:
            return
        if name in INPUTS:
            self._used.add(name)
            self._types[name] = "bool" if name.endswith("_lanes") else "raw"

    # Expressions

    def _expression(self) -> _Value:
        condition = self._binary(0)
        if not self._skip("?"):
            return condition
        yes = self._expression()
        self._take(":")
        no = self._expression()
        a, b, kind = self._same(yes, no)
        return _Value(f"np.where({self._truth(condition)}, {a}, {b})", kind)

    def _binary(self, level: int) -> _Value:
        if level == len(_PRECEDENCE):
            return self._unary()
        left = self._binary(level + 1)
        while self._peek() in _PRECEDENCE[level]:
            operator = self._take()
            right = self._binary(level + 1)
            left = self._combine(operator, left, right)
        return left

    def _combine(self, op: str, a: _Value, b: _Value) -> _Value:
        if op in ("&&", "||"):
            return _Value(f"({self._truth(a)} {op[0]} {self._truth(b)})", "bool")
        if op == "**":
            if a.code not in ("2.0",):
                raise _Unsupported(f"a power of {a.code}")
            return _Value(self._array(b).code, "pow2")
        if op == "*" and b.type == "pow2":
            return _Value(f"floats.scale({a.code}, {b.code})", a.type)
        if op == "*" and a.type == "pow2":
            return _Value(f"floats.scale({b.code}, {a.code})", b.type)
        if op in ("<<", ">>"):
            left = self._array(a)
            way = "left" if op == "<<" else "right"
            return _Value(f"h.shift_{way}({left.code}, {self._array(b).code})", left.type)
        x, y, kind = self._same(a, b)
        if op in ("==", "!=", "<>", "<", "<=", ">", ">="):
            return _Value(f"({x} {'!=' if op == '<>' else op} {y})", "bool")
        if op in ("&", "|", "^") or kind == "bool":
            return _Value(f"({x} {op} {y})", kind)
        if kind[0] == "f":
            if op == "/":
                return self._division(x, y, kind)
            call = {"+": "add", "-": "subtract", "*": "multiply"}.get(op)
            if call is None:
                raise _Unsupported(f"{op} of floats")
            return _Value(f"floats.{call}({x}, {y})", kind)
        if op in ("+", "-", "*"):
            return _Value(f"({x} {op} {y})", kind)
        raise _Unsupported(f"{op} of {kind}")

    def _division(self, x: str, y: str, kind: str) -> _Value:
        # 1 / y and 1 / sqrt(y) are approximated as one.
        one = x == f"np.full(1, 1.0, np.{_np(kind)})"
        if not one or kind == "f64":
            raise _Unsupported("a division")
        if y.startswith("trans.sqrt("):
            return _Value(y.replace("trans.sqrt(", "trans.rsq(", 1), kind)
        return _Value(f"trans.rcp({y})", kind)

    def _unary(self) -> _Value:
        token = self._peek()
        if token == "!":
            self._take()
            return _Value(f"~{self._truth(self._unary())}", "bool")
        if token == "~":
            self._take()
            value = self._array(self._unary())
            return _Value(f"~{value.code}", value.type)
        if token in ("-", "+"):
            self._take()
            value = self._unary()
            return value if token == "+" else _Value(f"(-{value.code})", value.type)
        return self._postfix(self._primary())

    def _primary(self) -> _Value:
        token = self._take()
        if token == "(":
            value = self._expression()
            self._take(")")
            return value
        if token == "{":
            return self._concatenation()
        if match := re.fullmatch(r"(\d+)'([UIFB])", token):
            return self._cast(int(match[1]), match[2])
        if match := re.fullmatch(r"(\d+)'(\d+\.\d+)", token):
            return self._as(_Value(match[2], "real"), f"f{match[1]}")
        if match := re.fullmatch(r"(\d+)'(\d+)U?", token):
            width = int(match[1])
            kind = {16: "u16", 32: "u32", 64: "u64"}.get(width, "int")
            return self._literal(int(match[2]), kind)
        if token.startswith("0x"):
            digits = re.fullmatch(r"(0x[0-9a-fA-F]+)(ULL|LL|U)?", token)
            assert digits
            return self._literal(int(digits[1], 16), _suffix(digits[2]))
        if match := re.fullmatch(r"(\d+\.\d+)(F)?", token):
            return _Value(match[1], "real")
        if match := re.fullmatch(r"(\d+)(ULL|LL|U|F)?", token):
            if match[2] == "F":
                return _Value(f"{match[1]}.0", "real")
            return self._literal(int(match[1]), _suffix(match[2]))
        if not token.isidentifier() or token in _KEYWORDS:
            raise _Unsupported(f"{token!r}")
        if self._peek() == "(":
            return self._call(token)
        if token in _CONSTANTS:
            return _Value(_CONSTANTS[token], "real")
        if self._peek() == "." and self._peek(2) == "[" and self._peek(3) == "laneId":
            self._at += 4
            self._take("]")
            if self._skip("."):
                self._take()
            name = f"{token}_lanes"
            self._know(name)
            if name not in self._types:
                raise _Unsupported(f"{token}[laneId]")
            return _Value(f"v_{name}", "bool")
        self._know(token)
        if token not in self._types:
            raise _Unsupported(f"{token!r}")
        return _Value(f"v_{token}", self._types[token])

    @staticmethod
    def _literal(value: int, kind: str) -> _Value:
        if kind == "int":
            return _Value(str(value), "int")
        return _Value(f"np.full(1, {value}, np.{_np(kind)})", kind)

    def _concatenation(self) -> _Value:
        parts = [self._array(self._expression())]
        while self._skip(","):
            parts.append(self._array(self._expression()))
        self._take("}")
        widths = [_width(part.type) for part in parts]
        if sum(widths) not in (32, 64):
            raise _Unsupported(f"a concatenation of {sum(widths)} bits")
        kind = f"u{sum(widths)}"
        low, terms = 0, []
        for part, width in zip(reversed(parts), reversed(widths), strict=True):
            word = f"h.bits({part.code}).astype(np.{_np(kind)})"
            terms.append(f"({word} << np.{_np(kind)}({low}))")
            low += width
        return _Value(f"({' | '.join(terms)})", kind)

    def _cast(self, width: int, letter: str) -> _Value:
        self._take("(")
        value = self._expression()
        self._take(")")
        kind = {"U": "u", "I": "i", "F": "f", "B": "b"}[letter] + str(width)
        if kind not in _DTYPES:
            raise _Unsupported(f"a conversion to {kind}")
        if value.type == "int" and letter == "F":  # the bits of a float
            return _Value(f"np.full(1, {value.code}, np.uint{width}).view(np.{_np(kind)})", kind)
        if value.type in ("int", "real"):
            return self._as(value, kind)
        value = self._array(value)
        if letter == "B":
            return _Value(f"h.retype({value.code}, np.{_np(kind)})", kind)
        return _Value(f"h.cast({value.code}, np.{_np(kind)})", kind)

    def _call(self, name: str) -> _Value:
        self._take("(")
        arguments = []
        while not self._skip(")"):
            arguments.append(self._array(self._expression()))
            self._skip(",")
        if name == "signext_from_bit":
            value, bit = arguments
            shift = f"({_width(value.type)} - {bit.code}.astype(np.int64))"
            moved = f"h.shift_left({value.code}, {shift})"
            return _Value(f"h.shift_right({moved}, {shift})", value.type)
        if name == "signext":
            value = arguments[0]
            if value.type[0] != "i":
                raise _Unsupported(f"signext of {value.type}")
            return _Value(f"{value.code}.astype(np.int64)", "i64")
        if name in _APPROXIMATED:
            return _Value(f"trans.{name}({arguments[0].code})", arguments[0].type)
        if name not in _FUNCTIONS:
            raise _Unsupported(f"the function {name}")
        code, kind_of_result = _FUNCTIONS[name]
        return _Value(
            code.format(*(argument.code for argument in arguments)),
            kind_of_result or arguments[0].type,
        )

    def _postfix(self, value: _Value) -> _Value:
        while self._peek() in (".", "["):
            if self._skip("."):
                kind = self._take()
                if value.type == "real":
                    value = self._as(value, kind)
                elif kind in ("u1", "b1"):
                    value = _Value(f"h.field({self._array(value).code}, 0, 0)", "u16")
                elif kind == "u3":
                    value = _Value(f"h.field({self._array(value).code}, 2, 0)", "u16")
                elif kind == "u24":
                    value = _Value(f"h.field({self._array(value).code}, 23, 0)", "u32")
                elif kind == "i24":
                    word = f"h.retype({self._array(value).code}, np.int32)"
                    value = _Value(f"(({word} << np.int32(8)) >> np.int32(8))", "i32")
                elif kind in _DTYPES:
                    if value.type != kind:
                        code = self._array(value).code
                        value = _Value(f"h.retype({code}, np.{_np(kind)})", kind)
                else:
                    raise _Unsupported(f"the type {kind}")
                continue
            self._take("[")
            high = self._expression()
            array = self._array(value)
            if self._skip(":"):
                top, bottom = int(high.code), self._constant()
                if top < bottom:
                    raise _Unsupported("reversed bits")
                kind = "b64" if top - bottom > 31 else "b32" if top - bottom > 15 else "b16"
                value = _Value(f"h.field({array.code}, {top}, {bottom})", kind)
            else:
                if array.type == "raw":
                    raise _Unsupported("a bit of a value without a type")
                by = self._array(high).code
                one = f"np.{_np(array.type)}(1)"
                value = _Value(f"(h.shift_right({array.code}, {by}) & {one})", array.type)
            self._take("]")
        return value

    # Types

    def _array(self, value: _Value) -> _Value:
        if value.type == "int":
            return _Value(f"np.full(1, {value.code}, np.int32)", "i32")
        if value.type == "real":
            return self._as(value, "f32")
        return value

    def _as(self, value: _Value, kind: str) -> _Value:
        """A value where one of a type is assigned: literals take it, others give their bits."""
        if kind in ("u1", "b1"):
            kind = "u32"
        if kind not in _DTYPES:
            raise _Unsupported(f"the type {kind}")
        if value.type == kind:
            return value
        if value.type == "int" and not value.code.startswith("v_"):
            number = int(value.code.strip("()")) & ((1 << _width(kind)) - 1)
            return _Value(f"np.full(1, {number}, np.uint{_width(kind)}).view(np.{_np(kind)})", kind)
        if value.type == "int":
            return _Value(f"np.full(1, {value.code}, np.{_np(kind)})", kind)
        if value.type == "real":
            return _Value(f"np.full(1, {value.code}, np.{_np(kind)})", kind)
        if value.type == "bool":
            return _Value(f"{value.code}.astype(np.{_np(kind)})", kind)
        if value.type == "pow2":
            raise _Unsupported("a power of two on its own")
        if kind[0] == "f" and value.type[0] == "f":
            return _Value(f"h.cast({value.code}, np.{_np(kind)})", kind)
        return _Value(f"h.retype({value.code}, np.{_np(kind)})", kind)

    def _same(self, a: _Value, b: _Value) -> tuple[str, str, str]:
        """Two values in the type of both."""
        untyped = ("int", "real")
        if a.type in untyped and b.type in untyped:
            kind = "f32" if "real" in (a.type, b.type) else "i32"
            return self._as(a, kind).code, self._as(b, kind).code, kind
        if a.type in untyped or b.type in untyped:
            typed = b.type if a.type in untyped else a.type
            if typed == "bool":
                return self._truth(a), self._truth(b), "bool"
            if typed == "raw":
                raise _Unsupported("a value without a type")
            return self._as(a, typed).code, self._as(b, typed).code, typed
        if a.type == b.type:
            if a.type == "raw":
                raise _Unsupported("values without a type")
            return a.code, b.code, a.type
        if a.type == "bool" and b.type != "raw":
            return self._as(a, b.type).code, b.code, b.type
        if b.type == "bool" and a.type != "raw":
            return a.code, self._as(b, a.type).code, a.type
        if "raw" in (a.type, b.type):
            raise _Unsupported(f"{a.type} with {b.type}")
        if a.type[0] == "f" or b.type[0] == "f":
            raise _Unsupported(f"{a.type} with {b.type}")
        width = max(_width(a.type), _width(b.type))
        signed = a.type[0] == b.type[0] == "i"
        kind = f"{'i' if signed else 'u'}{width}"
        return (
            f"{a.code}.astype(np.{_np(kind)})",
            f"{b.code}.astype(np.{_np(kind)})",
            kind,
        )

    def _truth(self, value: _Value) -> str:
        if value.type == "bool":
            return value.code
        if value.type in ("int", "real"):
            return f"np.full(1, {value.code} != 0)"
        return f"({value.code} != 0)"


def _tokens(text: str) -> list[str]:
    text = re.sub(r"//[^\n]*", "", text)
    tokens = []
    for line in re.split(r"[;\n]", text):
        at = 0
        line = line.rstrip()
        while at < len(line):
            match = _TOKEN.match(line, at)
            if match is None:
                raise _Unsupported(f"{line[at:]!r}")
            tokens.append(match[0].strip())
            at = match.end()
        if tokens and tokens[-1] not in (";", "&&", "||", "?", ":"):
            tokens.append(";")
    return tokens


def _np(kind: str) -> str:
    return str(_DTYPES[kind].__name__)


def _width(kind: str) -> int:
    if kind == "bool":
        return 1
    if kind not in _DTYPES:
        raise _Unsupported(f"the width of {kind}")
    return int(re.sub(r"\D", "", kind))


def _suffix(suffix: str | None) -> str:
    return {None: "int", "U": "u32", "ULL": "u64", "LL": "i64"}[suffix]
