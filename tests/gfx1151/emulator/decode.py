"""Decodes RDNA 3 and 3.5 machine code with tinygrad's tables of AMD's encodings.

An instruction becomes one form whatever its encoding was: a name, a destination, sources and
modifiers. What the tables do not have, or have no place for here, is an error that names it.
"""

import dataclasses
import functools
from typing import Any

from tinygrad.renderer.amd import decode_inst
from tinygrad.renderer.amd.dsl import OPERANDS, Inst, Reg

from tests.gfx1151.emulator.errors import Unknown

# Numbers of registers and constants, as source operands encode them.
VCC, NULL, M0, EXEC, LITERAL, VGPR = 106, 124, 125, 126, 255, 256
_DPP8 = (233, 234)
_DPP16 = 250
_NO_MEANING = {235, 236, 237, 238, 249, 251, 252, 254}


@dataclasses.dataclass(frozen=True)
class Operand:
    """A register or constant: `code` as AMD numbers them (VGPRs from 256).

    bits: 16, 32, 64, ...; lanes: a mask with a bit for each lane. kind: F32, U16, ... as the
    tables name number formats. half: which half of the register a 16-bit operand is.
    """

    code: int
    bits: int
    kind: str = "B32"
    half: int = 0
    negated: bool = False
    absolute: bool = False
    literal: int | None = None

    @property
    def words(self) -> int:
        """Registers that it takes."""
        return max(1, self.bits // 32)

    @property
    def lanes(self) -> bool:
        """Whether it is a mask of lanes."""
        return self.kind == "M64"

    def registers(self) -> range:
        """The numbers of its registers; none for a constant."""
        held = self.code < NULL or self.code in (M0, EXEC, EXEC + 1) or self.code >= VGPR
        return range(self.code, self.code + self.words) if held else range(0)


@dataclasses.dataclass(frozen=True)
class Dpp:
    """Data parallel primitives: which lane each lane takes its first source from."""

    control: int
    row_mask: int
    bank_mask: int
    bound_control: bool  # a lane without a source gets 0, else it is not written
    fetch_inactive: bool


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One instruction; of a VOPD pair the first, with the second as `pair`.

    name: AMD's, without the encoding's suffix. encoding: VOP1, VOP2, VOP3, VOP3SD, VOP3P, VOPC,
    VOPD, SOP1, SOP2, SOPC, SOPK, SOPP, SMEM or GLOBAL. long: a VOP3 form of an instruction that
    has a short one. offset: of an address, in bytes.
    """

    name: str
    encoding: str
    size: int
    raw: int
    dst: Operand | None = None
    sdst: Operand | None = None
    srcs: tuple[Operand, ...] = ()
    saddr: Operand | None = None
    simm16: int = 0
    offset: int = 0
    literal: int | None = None
    clamp: bool = False
    omod: int = 0
    op_sel: int = 0
    op_sel_hi: int = 0
    neg_hi: int = 0
    dpp: Dpp | None = None
    cache: tuple[str, ...] = ()
    long: bool = False
    pair: "Instruction | None" = None

    @property
    def reads(self) -> tuple[Operand, ...]:
        """Every operand whose registers the instruction reads (a mask it reads included)."""
        operands = self.srcs + ((self.saddr,) if self.saddr else ())
        return operands + (self.pair.reads if self.pair else ())

    @property
    def writes(self) -> tuple[Operand, ...]:
        """Every operand whose registers the instruction writes."""
        operands = tuple(each for each in (self.dst, self.sdst) if each)
        return operands + (self.pair.writes if self.pair else ())


def decode(code: bytes, at: int = 0) -> Instruction:
    """The instruction at an offset in bytes of the code.

    Raises Unknown with the words found when the tables have no such instruction.
    """
    # The longest instruction takes 12 bytes.
    return _decode(code[at : at + 12])


@functools.cache
def _decode(window: bytes) -> Instruction:
    words = " ".join(f"{word:08x}" for word in _words(window))
    try:
        inst = decode_inst(window + bytes(12 - len(window)), "rdna3")
    except (ValueError, AssertionError) as error:
        raise Unknown(f"no RDNA 3.5 instruction is encoded by {words}") from error
    if inst.size() > len(window):
        raise Unknown(f"the code ends within the instruction {words}")
    encoding = type(inst).__name__.split("_")[0]
    make = _MAKERS.get(encoding)
    if make is None:
        raise Unknown(f"the encoding {encoding} of {_name(inst)} ({words}) is not executed")
    return make(inst, encoding)


def _words(data: bytes) -> list[int]:
    return [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]


def _name(inst: Inst) -> str:
    op = _enum(inst, "op" if hasattr(inst, "op") else "opx")
    return str(op.name).removesuffix("_E32").removesuffix("_E64")


def _field(inst: Inst, name: str) -> int:
    """The bits of a field, undecoded; 0 where the encoding has no such field."""
    field = dict(inst._fields).get(name)
    return 0 if field is None else (inst._raw >> field.lo) & field.mask


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def _enum(inst: Inst, field: str) -> Any:
    """An opcode's field, as the table's enumeration."""
    return getattr(inst, field)


def _operand(inst: Inst, field: str, *names: str, op: Any = None) -> Operand | None:
    """The operand in a field, with the type that the tables have under one of the names."""
    known: dict[str, Any] = OPERANDS.get(_enum(inst, "op") if op is None else op, {})
    found = next((known[name] for name in names if name in known), None)
    if found is None:
        return None
    kind, bits, where = found
    register: Reg = getattr(inst, field)
    code = register.offset
    if code in _NO_MEANING:
        raise Unknown(f"{_name(inst)} has the operand {register!r}, which is not executed")
    kind_name = kind.name.removeprefix("FMT_").removeprefix("NUM_")
    if kind_name == "ANY":
        kind_name = "B32"
    if where.name == "OPR_EXEC":
        code = EXEC
    literal = inst._literal if code == LITERAL else None
    return Operand(code, 32 if kind_name == "M64" else bits, kind_name, literal=literal)


def _base(inst: Inst, encoding: str) -> dict[str, Any]:
    return {
        "name": _name(inst),
        "encoding": encoding,
        "size": inst.size(),
        "raw": inst._raw,
        "literal": inst._literal,
    }


def _scalar(inst: Inst, encoding: str) -> Instruction:
    sources = (_operand(inst, name, name) for name in ("ssrc0", "ssrc1") if hasattr(inst, name))
    return Instruction(
        **_base(inst, encoding),
        dst=_operand(inst, "sdst", "sdst") if hasattr(inst, "sdst") else None,
        srcs=tuple(source for source in sources if source),
        simm16=_field(inst, "simm16"),
    )


def _scalar_memory(inst: Inst, encoding: str) -> Instruction:
    offset = _operand(inst, "soffset", "soffset")
    base = _operand(inst, "sbase", "sbase")
    assert base and offset
    return Instruction(
        **_base(inst, encoding),
        dst=_operand(inst, "sdata", "sdata"),
        srcs=(dataclasses.replace(base, bits=64), dataclasses.replace(offset, bits=32)),
        offset=_signed(_field(inst, "offset"), 21),
        cache=tuple(name for name in ("glc", "dlc") if _field(inst, name)),
    )


def _global(inst: Inst, encoding: str) -> Instruction:
    saddr = _operand(inst, "saddr", "saddr")
    addr = _operand(inst, "addr", "addr")
    assert saddr and addr
    with_base = saddr.code != NULL
    addr = dataclasses.replace(addr, bits=32 if with_base else 64)
    data = _operand(inst, "data", "data")
    return Instruction(
        **_base(inst, encoding),
        dst=_operand(inst, "vdst", "vdst"),
        srcs=(addr, data) if data else (addr,),
        saddr=dataclasses.replace(saddr, bits=64) if with_base else None,
        offset=_signed(_field(inst, "offset"), 13),
        cache=tuple(name for name in ("slc", "glc", "dlc") if _field(inst, name)),
    )


def _vector(inst: Inst, encoding: str) -> Instruction:
    """VOP1, VOP2, VOPC and the VOP3 encodings."""
    base = _base(inst, encoding)
    dpp, has_dpp = None, False
    if type(inst).__name__.endswith("_DPP16"):
        has_dpp = True
        dpp = Dpp(
            _field(inst, "dpp"),
            _field(inst, "row_mask"),
            _field(inst, "bank_mask"),
            bool(_field(inst, "bc")),
            bool(_field(inst, "fi")),
        )
    wide = encoding.startswith("VOP3")
    negated, absolute = _field(inst, "neg"), _field(inst, "abs")
    op_sel, op_sel_hi = _field(inst, "opsel"), 0
    if encoding == "VOP3P":
        op_sel_hi = _field(inst, "opsel_hi") | _field(inst, "opsel_hi2") << 2
    if has_dpp and not wide:
        for i in range(2):
            negated |= _field(inst, f"src{i}_neg") << i
            absolute |= _field(inst, f"src{i}_abs") << i

    sources = []
    for i in range(3):
        field = f"src{i}" if f"src{i}" in dict(inst._fields) else f"vsrc{i}"
        if i == 0 and has_dpp:
            field = "vsrc0"
        if field not in dict(inst._fields):
            break
        operand = _operand(inst, field, f"src{i}", f"vsrc{i}")
        if operand is None:
            break
        if operand.code in _DPP8 or operand.code == _DPP16:
            raise Unknown(f"{_name(inst)} with DPP8 is not executed")
        half = 0
        if operand.bits == 16 and operand.code >= VGPR:
            if not wide:  # the register's top bit chooses the half
                half = (operand.code - VGPR) >> 7
                operand = dataclasses.replace(operand, code=VGPR + (operand.code - VGPR) % 128)
            elif encoding != "VOP3P":
                half = op_sel >> i & 1
        if encoding != "VOP3P":
            operand = dataclasses.replace(
                operand,
                half=half,
                negated=bool(negated >> i & 1),
                absolute=bool(absolute >> i & 1),
            )
        else:
            operand = dataclasses.replace(operand, negated=bool(negated >> i & 1), absolute=False)
        sources.append(operand)

    dst, sdst = None, None
    if encoding == "VOPC":
        exec_written = _name(inst).startswith("V_CMPX")
        dst = Operand(EXEC if exec_written else VCC, 32, "M64")
    elif "vdst" in dict(inst._fields):
        dst = _operand(inst, "vdst", "vdst")
        if dst and dst.bits == 16 and dst.code >= VGPR:
            if not wide:
                dst = dataclasses.replace(
                    dst, half=(dst.code - VGPR) >> 7, code=VGPR + (dst.code - VGPR) % 128
                )
            elif encoding != "VOP3P":
                dst = dataclasses.replace(dst, half=op_sel >> 3 & 1)
            else:  # of a mixed instruction: its name says which half
                dst = dataclasses.replace(dst, bits=32)
    if encoding == "VOP3SD":
        sdst = _operand(inst, "sdst", "sdst")
    name = _name(inst)
    if name.startswith("V_DIV_FMAS") or (
        encoding == "VOP2" and ("_CO_CI_" in name or "_CNDMASK_" in name)
    ):
        sources.append(Operand(VCC, 32, "M64"))  # read without a field
        if "_CO_CI_" in name:
            sdst = Operand(VCC, 32, "M64")
    return Instruction(
        **base,
        dst=dst,
        sdst=sdst,
        srcs=tuple(sources),
        clamp=bool(_field(inst, "clmp")),
        omod=_field(inst, "omod"),
        op_sel=op_sel,
        op_sel_hi=op_sel_hi,
        neg_hi=_field(inst, "neg_hi"),
        dpp=dpp,
        long=wide and _name(inst) in _short_names(),
    )


@functools.cache
def _short_names() -> frozenset[str]:
    from tinygrad.runtime.autogen.amd.rdna3.enum import VOP1Op, VOP2Op, VOPCOp

    return frozenset(
        op.name.removesuffix("_E32") for table in (VOP1Op, VOP2Op, VOPCOp) for op in table
    )


def _vopd(inst: Inst, encoding: str) -> Instruction:
    from tinygrad.runtime.autogen.amd.rdna3.enum import VOP1Op, VOP2Op

    halves: list[Instruction] = []
    for axis in "xy":
        name = _enum(inst, f"op{axis}").name.replace("V_DUAL_", "V_")
        op = next(
            (op for table in (VOP2Op, VOP1Op) for op in table if op.name in (name, f"{name}_E32")),
            None,
        )
        if op is None:
            raise Unknown(f"V_DUAL_{name[2:]} is not executed")
        sources = [
            _operand(inst, f"src{axis}0", "src0", op=op),
            _operand(inst, f"vsrc{axis}1", "vsrc1", op=op),
        ]
        srcs = tuple(source for source in sources if source)
        if "_CNDMASK_" in name:
            srcs += (Operand(VCC, 32, "M64"),)
        halves.append(
            Instruction(
                **{**_base(inst, encoding), "name": name},
                dst=_operand(inst, f"vdst{axis}", "vdst", op=op),
                srcs=srcs,
            )
        )
    return dataclasses.replace(halves[0], pair=halves[1])


_MAKERS = {
    **dict.fromkeys(("SOP1", "SOP2", "SOPC", "SOPK", "SOPP"), _scalar),
    **dict.fromkeys(("VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOP3P"), _vector),
    "SMEM": _scalar_memory,
    "GLOBAL": _global,
    "VOPD": _vopd,
}
