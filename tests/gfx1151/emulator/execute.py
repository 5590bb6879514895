"""Turns instructions into functions that execute them on waves.

The meaning of ALU instructions is AMD's pseudo-code, compiled (pcode.py), where it says all; what
it leaves open, or says in terms of the whole waves, is written out here: cross-lane moves, memory,
waits, branches, mixed-precision operands and the scaling step of division.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from tinygrad.runtime.autogen.amd.rdna3.str_pcode import PCODE

from tests.gfx1151.emulator import floats
from tests.gfx1151.emulator.cross_lane import CROSS_LANE, dpp_source
from tests.gfx1151.emulator.decode import EXEC, LITERAL, NULL, VCC, VGPR, Instruction, Operand
from tests.gfx1151.emulator.errors import Unknown, Violation
from tests.gfx1151.emulator.measure import SCALAR_LINE, VECTOR_LINE
from tests.gfx1151.emulator.pcode import Compiled, compile_pcode
from tests.gfx1151.emulator.wave import ALL, LANES, Waves, lanes_of, masks_of
from tests.gfx1151.emulator.written_out import WRITTEN_OUT

Array = np.ndarray[Any, Any]
# Executes an instruction. Where the waves part at a branch, it returns those that do not go on with
# the rest of them.
Step = Callable[[Waves], Waves | None]
Reader = Callable[[Waves], Array]

_FLOATS = {0: 0.5, 1: -0.5, 2: 1.0, 3: -1.0, 4: 2.0, 5: -2.0, 6: 4.0, 7: -4.0}
_INVERSE_TWO_PI = {16: 0x3118, 32: 0x3E22F983, 64: 0x3FC45F306DC9C882}
_TRANS = {"V_RCP", "V_RSQ", "V_LOG", "V_EXP", "V_SQRT", "V_SIN", "V_COS"}


@functools.cache
def step_of(inst: Instruction) -> Step:
    """The function that executes an instruction. Raises Unknown naming it when there is none."""
    if inst.encoding == "SOPP":
        step = _program(inst)
    elif inst.encoding in ("SOP1", "SOP2", "SOPC", "SOPK"):
        step = _scalar(inst)
    elif inst.encoding == "SMEM":
        step = _scalar_load(inst)
    elif inst.encoding == "GLOBAL":
        step = _global(inst)
    elif inst.encoding == "VOPD":
        step = _pair(inst)
    else:
        step = _vector(inst)
    return _counted(inst, step)


def class_of(inst: Instruction) -> str:
    """What kind of instruction it is, for the count."""
    name = inst.name
    if inst.encoding == "SOPP":
        if "BRANCH" in name:
            return "branch"
        return "wait" if name.startswith("S_WAIT") else "other"
    if name.startswith("S_WAITCNT"):
        return "wait"
    if inst.encoding == "SMEM":
        return "smem"
    if inst.encoding == "GLOBAL":
        return "vmem load" if "LOAD" in name else "vmem store"
    if inst.encoding.startswith("SOP"):
        return "salu"
    trans = "_".join(name.split("_")[:2]) in _TRANS
    return "trans" if trans else "valu"


def _counted(inst: Instruction, step: Step) -> Step:
    """Counts, and refuses registers that a load is still on its way to."""
    kind = class_of(inst)
    # Vector loads return in order: one may be sent after another to the same register.
    operands = inst.reads if kind == "vmem load" else (*inst.reads, *inst.writes)
    touched = frozenset(register for operand in operands for register in operand.registers())
    used = (register for operand in (*operands, *inst.writes) for register in operand.registers())
    vector = max((register - VGPR for register in used), default=-1)

    def run(waves: Waves) -> Waves | None:
        if waves.pending and not touched.isdisjoint(waves.pending):
            early = min(touched & waves.pending)
            register = f"v{early - VGPR}" if early >= VGPR else f"s{early}"
            raise Violation(f"touches {register} while a load into it is under way")
        if vector >= len(waves.vgpr):
            raise Violation(f"uses v{vector}; a wave has {len(waves.vgpr)} vector registers")
        waves.measured.instructions[kind] += len(waves)
        waves.measured.places[waves.pc] += len(waves)
        waves.pc += inst.size
        return step(waves)

    return run


# Operands


def reader(operand: Operand) -> Reader:
    """Reads an operand's bits: arrays of unsigned integers, an element a lane or one for all."""
    raw = _raw_reader(operand)
    half = operand.half
    sign = {16: 0x8000, 32: 0x80000000, 64: 1 << 63}.get(operand.bits, 0)
    if not (operand.negated or operand.absolute):
        if half:
            return lambda waves: raw(waves) >> np.uint32(16)
        return raw
    if operand.kind not in ("F16", "F32", "F64", "B32"):
        raise Unknown(f"a sign modifier on an operand of type {operand.kind}")

    def modified(waves: Waves) -> Array:
        value = raw(waves)
        if half:
            value = value >> np.uint32(16)
        kind = value.dtype.type
        if operand.absolute:
            value = value & kind(~sign & ((1 << 8 * value.itemsize) - 1))
        if operand.negated:
            value = value ^ kind(sign)
        return value

    return modified


def _raw_reader(operand: Operand) -> Reader:
    code, wide = operand.code, operand.bits == 64
    if code >= VGPR:
        index = code - VGPR
        if not wide:
            return lambda waves: waves.vgpr[index]
        return lambda waves: _joined(waves.vgpr[index], waves.vgpr[index + 1])
    if code == NULL:
        return _constant(0, wide)
    if code < 128:
        if not wide:
            return lambda waves: waves.sgpr[code]
        return lambda waves: _joined(waves.sgpr[code], waves.sgpr[code + 1])
    if code == 253:
        return lambda waves: waves.scc.astype(np.uint32)
    return _constant(_constant_bits(operand), wide)


def _joined(low: Array, high: Array) -> Array:
    return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)


def _constant(bits: int, wide: bool) -> Reader:
    value = np.array([bits], np.uint64 if wide else np.uint32)
    value.flags.writeable = False
    return lambda waves: value


def _constant_bits(operand: Operand) -> int:
    code, bits = operand.code, operand.bits
    full = (1 << max(32, bits)) - 1
    if 128 <= code <= 192:
        return code - 128
    if 193 <= code <= 208:
        return (192 - code) & full
    if 240 <= code <= 247:
        dtype = {16: np.float16, 32: np.float32, 64: np.float64}[bits]
        return int.from_bytes(np.array([_FLOATS[code - 240]], dtype).tobytes(), "little")
    if code == 248:
        return _INVERSE_TWO_PI[bits]
    if code == LITERAL:
        assert operand.literal is not None
        if bits == 64 and operand.kind == "F64":
            return operand.literal << 32
        if bits == 64 and operand.kind.startswith("I"):
            return (operand.literal ^ 0x80000000) - 0x80000000 & full
        return operand.literal
    raise Unknown(f"the operand {code}")


# Scalar ALU


def _pcode(inst: Instruction) -> Compiled:
    text = _texts().get(inst.name)
    if text is None:
        raise Unknown(f"{inst.name} is not executed: it has no pseudo-code")
    return compile_pcode(inst.name, text)


@functools.cache
def _texts() -> dict[str, str]:
    texts: dict[str, str] = {}
    for op, text in PCODE.items():
        if type(op).__name__[:4] in (
            "SOP1",
            "SOP2",
            "SOPC",
            "SOPK",
            "VOP1",
            "VOP2",
            "VOP3",
            "VOPC",
        ):
            texts.setdefault(op.name.removesuffix("_E32").removesuffix("_E64"), text)
    return texts


def _scalar(inst: Instruction) -> Step:
    if inst.name.startswith("S_WAITCNT_"):
        return _scalar_wait(inst)
    run = WRITTEN_OUT.get(inst.name) or _pcode(inst)
    # S_CMPK and S_ADDK read their destination as the first source.
    sources = inst.srcs if inst.encoding != "SOPK" or inst.dst is None else (inst.dst,)
    readers = [(f"S{i}", reader(operand)) for i, operand in enumerate(sources)]
    dst = inst.dst
    if dst is not None:
        readers.append(("D0", reader(dst)))
    constants = {"SIMM16": np.array([inst.simm16], np.uint16)}
    if inst.literal is not None:
        constants["SIMM32"] = np.array([inst.literal], np.uint32)
    read_exec = reader(Operand(EXEC, 32))

    def step(waves: Waves) -> None:
        inputs = {name: read(waves) for name, read in readers}
        inputs |= constants
        inputs["SCC"] = waves.scc
        inputs["EXEC"] = read_exec(waves).copy()
        outputs = run(inputs, waves.trans)
        if "EXEC" in outputs:
            waves.set_exec(outputs["EXEC"])
        if dst is not None and "D0" in outputs:
            waves.write_scalar(dst.code, _words(outputs["D0"], dst.words))
        if "SCC" in outputs:
            waves.scc = np.broadcast_to(outputs["SCC"].astype(bool), (len(waves), 1))

    return step


def _words(value: Array, words: int) -> list[Array]:
    bits = value.view(f"u{value.itemsize}")
    if words == 1:
        return [bits.astype(np.uint32)]
    wide = bits.astype(np.uint64)
    return [(wide >> np.uint64(32 * i)).astype(np.uint32) for i in range(words)]


# Vector ALU


def _vector(inst: Instruction) -> Step:
    cross_lane = CROSS_LANE.get(inst.name)
    if cross_lane is not None:
        if inst.dpp or inst.clamp or inst.omod:
            raise Unknown(f"{inst.name} with modifiers is not executed")
        return cross_lane(inst, reader)
    compute = _computation(inst)
    write = _writer(inst)

    def step(waves: Waves) -> None:
        outputs, lanes = compute(waves)
        write(waves, outputs, lanes)

    return step


def _pair(inst: Instruction) -> Step:
    """Both instructions of a VOPD pair read before either writes."""
    assert inst.pair is not None
    first, second = _computation(inst), _computation(inst.pair)
    write_first, write_second = _writer(inst), _writer(inst.pair)

    def step(waves: Waves) -> None:
        a, lanes = first(waves)
        a = {name: value.copy() for name, value in a.items()}
        b, _ = second(waves)
        b = {name: value.copy() for name, value in b.items()}
        write_first(waves, a, lanes)
        write_second(waves, b, lanes)

    return step


_Outputs = tuple[dict[str, Array], Array | None]


def _computation(inst: Instruction) -> Callable[[Waves], _Outputs]:
    """The values an instruction gives, and the lanes that DPP keeps from being written."""
    if inst.omod:
        raise Unknown(f"{inst.name} with an output modifier is not executed")
    mixed = inst.name.startswith("V_FMA_MIX")
    run = _mixed(inst) if mixed else WRITTEN_OUT.get(inst.name) or _pcode(inst)
    mask_operand = next((source for source in inst.srcs if source.lanes), None)
    sources = [source for source in inst.srcs if not source.lanes]
    if mixed:
        make = [_raw_reader(operand) for operand in sources]
    elif inst.encoding == "VOP3P":
        make = [_packed(inst, i, operand) for i, operand in enumerate(sources)]
    else:
        make = [reader(operand) for operand in sources]
    readers = [(f"S{i}", read) for i, read in enumerate(make)]
    read_mask = reader(mask_operand) if mask_operand else None
    dst = inst.dst
    if dst is not None and dst.code >= VGPR:
        readers.append(("D0", reader(dst)))
    constants: dict[str, Array] = {}
    if inst.literal is not None:
        constants["SIMM32"] = np.array([inst.literal], np.uint32)
    move = dpp_source(inst.dpp) if inst.dpp else None
    denormals = class_of(inst) == "trans"

    def compute(waves: Waves) -> _Outputs:
        inputs = {name: read(waves) for name, read in readers}
        inputs |= constants
        if read_mask is not None:
            inputs["VCC_lanes"] = lanes_of(read_mask(waves))
        kept: Array | None = None
        if move is not None:
            inputs["S0"], kept = move(waves, inputs["S0"])
        if denormals:
            _refuse_denormals(waves, sources[0], inputs["S0"])
        return run(inputs, waves.trans), kept

    return compute


def _refuse_denormals(waves: Waves, operand: Operand, bits: Array) -> None:
    """What the hardware makes of a denormal operand here is not documented."""
    dtype = np.float16 if operand.bits == 16 else np.float32
    values = bits.astype(f"u{np.dtype(dtype).itemsize}").view(dtype)
    if (floats.is_denormal(values) & waves.active).any():
        raise Violation("has a denormal operand, for which its result is not documented")


def _packed(inst: Instruction, i: int, operand: Operand) -> Reader:
    """The halves of a packed operand as op_sel, op_sel_hi, neg_lo and neg_hi choose them."""
    low_half, high_half = inst.op_sel >> i & 1, inst.op_sel_hi >> i & 1
    negate_low, negate_high = operand.negated, inst.neg_hi >> i & 1
    plain = _raw_reader(operand)
    if (low_half, high_half) == (0, 1) and not (negate_low or negate_high):
        return plain

    def swizzled(waves: Waves) -> Array:
        bits = plain(waves)
        low = bits >> np.uint32(16 * low_half) & np.uint32(0xFFFF)
        high = bits >> np.uint32(16 * high_half) & np.uint32(0xFFFF)
        low = low ^ np.uint32(0x8000 * negate_low)
        high = high ^ np.uint32(0x8000 * negate_high)
        return low | high << np.uint32(16)

    return swizzled


def _mixed(inst: Instruction) -> Compiled:
    """V_FMA_MIX: each operand is fp32, or the half of a register as fp16.

    The result of MIXLO and MIXHI is rounded to fp32 and then to fp16, as the pseudo-code says.
    """
    # In a mixed instruction neg_hi is the absolute value.
    is_half = [inst.op_sel_hi >> i & 1 for i in range(3)]
    is_high = [inst.op_sel >> i & 1 for i in range(3)]
    absolute = [inst.neg_hi >> i & 1 for i in range(3)]
    negated = [source.negated for source in inst.srcs]

    def run(inputs: dict[str, Array], trans: object) -> dict[str, Array]:
        values = []
        for i in range(3):
            bits = inputs[f"S{i}"]
            if is_half[i]:
                word = bits >> np.uint32(16 * is_high[i])
                value = floats.convert(word.astype(np.uint16).view(np.float16), np.float32)
            else:
                value = bits.view(np.float32)
            if absolute[i]:
                value = np.abs(value)
            values.append(-value if negated[i] else value)
        result = floats.fma(*values)
        if inst.clamp:
            result = _clamped(result)
        if inst.name.endswith("_F32"):
            return {"D0": result.view(np.uint32)}
        half = floats.convert(result, np.float16).view(np.uint16).astype(np.uint32)
        old = inputs["D0"]
        if "MIXLO" in inst.name:
            return {"D0": old & np.uint32(0xFFFF0000) | half}
        return {"D0": old & np.uint32(0xFFFF) | half << np.uint32(16)}

    return run


def _clamped(value: Array) -> Array:
    """Clamped to [0, 1]; NaN becomes 0 (DX10_CLAMP)."""
    return np.where(np.isnan(value), value.dtype.type(0), np.clip(value, 0, 1))


def _writer(inst: Instruction) -> Callable[[Waves, dict[str, Array], Array | None], None]:
    """Writes an instruction's values to its destinations, in active lanes alone.

    A mask of lanes is written whole, with 0 for inactive lanes.
    """
    dst, sdst, clamp = inst.dst, inst.sdst, inst.clamp
    if clamp and "FMA_MIX" not in inst.name and (dst is None or dst.kind not in ("F16", "F32")):
        raise Unknown(f"{inst.name} with clamp is not executed")

    def masked(waves: Waves, lanes: Array, kept: Array | None) -> Array:
        if kept is not None:
            raise Unknown(f"{inst.name} with DPP to a mask is not executed")
        return masks_of(lanes, len(waves)) & waves.sgpr[EXEC]

    def write(waves: Waves, outputs: dict[str, Array], kept: Array | None) -> None:
        if "D0" in outputs and dst is not None and dst.code >= VGPR:
            value = outputs["D0"]
            if clamp and "FMA_MIX" not in inst.name:
                dtype = np.float16 if dst.kind == "F16" else np.float32
                value = _clamped(value.view(dtype))
            _write_vector(waves, dst, value, kept)
        carry = outputs.get("VCC_lanes")
        if carry is not None and sdst is not None:
            waves.write_scalar(sdst.code, [masked(waves, carry, kept)])
        lanes = outputs.get("D0_lanes")
        if lanes is not None and dst is not None:
            waves.write_scalar(dst.code, [masked(waves, lanes, kept)])
        lanes = outputs.get("EXEC_lanes")
        if lanes is not None:
            waves.set_exec(masked(waves, lanes, kept))

    return write


def _write_vector(waves: Waves, dst: Operand, value: Array, kept: Array | None) -> None:
    if dst.words > 1:
        for i, word in enumerate(_words(value, dst.words)):
            waves.write_vector(dst.code + i, word)
        return
    bits = value.view(f"u{value.itemsize}")
    if bits.itemsize != 4:
        bits = bits.astype(np.uint32)
    old = waves.vgpr[dst.code - VGPR]
    if dst.bits == 16:
        # The other half of the register stays.
        if dst.half:
            bits = bits << np.uint32(16) | old & np.uint32(0xFFFF)
        else:
            bits = bits & np.uint32(0xFFFF) | old & np.uint32(0xFFFF0000)
    if kept is not None:
        bits = np.where(kept, old, bits)
    waves.write_vector(dst.code, bits)


# Memory

_SIZES = {"B8": 1, "U8": 1, "I8": 1, "B16": 2, "U16": 2, "I16": 2}
_SIZES |= {f"B{32 * words}": 4 * words for words in (1, 2, 3, 4, 8, 16)}


def _scalar_load(inst: Instruction) -> Step:
    size = _SIZES.get(inst.name.removeprefix("S_LOAD_"))
    if not inst.name.startswith("S_LOAD_") or size is None or inst.dst is None:
        raise Unknown(f"{inst.name} is not executed")
    base, offset = (reader(operand) for operand in inst.srcs)
    registers = tuple(range(inst.dst.code, inst.dst.code + size // 4))
    immediate = np.uint64(inst.offset & (2**64 - 1))
    if registers[-1] >= NULL:
        raise Unknown(f"{inst.name} into registers from s{registers[0]} on is not executed")

    def step(waves: Waves) -> None:
        address = base(waves) + offset(waves).astype(np.uint64) + immediate
        at = np.broadcast_to(address, (len(waves), 1))[:, 0]
        if (at % np.uint64(4)).any():
            access = int(np.flatnonzero(at % np.uint64(4))[0])
            raise Violation(f"has the address {int(at[access]):#x}, no multiple of 4", access)
        data = waves.memory.load(at, size)
        line = np.uint64(SCALAR_LINE)
        lines = (at + np.uint64(size - 1)) // line - at // line + np.uint64(1)
        waves.measured.transactions["scalar load"] += int(lines.sum())
        waves.measured.bytes["scalar load"] += size * len(waves)
        waves.issue_load("lgkm", registers, data.view(np.uint32).T[:, :, None])

    return step


def _global(inst: Instruction) -> Step:
    name = inst.name.removeprefix("GLOBAL_")
    kind, _, rest = name.partition("_")
    high = rest.startswith("D16_HI_")
    # A 16-bit load keeps the other half of its register.
    mask = 0xFFFF0000 if high else 0xFFFF if rest.startswith("D16_") else ALL
    type_name = rest.removeprefix("D16_HI_").removeprefix("D16_")
    size = _SIZES.get(type_name)
    if kind not in ("LOAD", "STORE") or size is None:
        raise Unknown(f"{inst.name} is not executed")
    addr = reader(inst.srcs[0])
    base = reader(inst.saddr) if inst.saddr else None
    offset = np.uint64(inst.offset & (2**64 - 1))
    signed = type_name.startswith("I")

    def addresses(waves: Waves) -> Array:
        lanes = addr(waves).astype(np.uint64) + offset
        if base is not None:
            lanes = lanes + base(waves)
        return np.broadcast_to(lanes, waves.active.shape)[waves.active]

    def account(waves: Waves, at: Array, what: str) -> None:
        # A line that two waves touch counts for both.
        first = at // np.uint64(VECTOR_LINE)
        last = (at + np.uint64(size - 1)) // np.uint64(VECTOR_LINE)
        wave = np.nonzero(waves.active)[0].astype(np.uint64)
        lines = np.concatenate((first, last)) - first.min()
        keys = lines * np.uint64(len(waves)) + np.concatenate((wave, wave))
        waves.measured.transactions[what] += len(np.unique(keys))
        waves.measured.bytes[what] += size * at.size

    def load(waves: Waves) -> None:
        assert inst.dst is not None
        words = max(1, size // 4)
        registers = tuple(range(inst.dst.code, inst.dst.code + words))
        values = np.zeros((words, len(waves), LANES), np.uint32)
        at = addresses(waves)
        if at.size:
            data = waves.memory.load(at, size)
            account(waves, at, "vector load")
            if size >= 4:
                values[:, waves.active] = data.view(np.uint32).T
            else:
                narrow = data.view(f"{'i' if signed else 'u'}{size}")[:, 0]
                values[0, waves.active] = narrow.astype(np.int32).view(np.uint32)
        if high:
            values[0] <<= np.uint32(16)
        waves.issue_load("vm", registers, values, mask)

    def store(waves: Waves) -> None:
        at = addresses(waves)
        waves.stores()
        if not at.size:
            return
        register = inst.srcs[1].code - VGPR
        if size >= 4:
            data = waves.vgpr[register : register + size // 4, waves.active].T
            data = np.ascontiguousarray(data).view(np.uint8)
        else:
            word = waves.vgpr[register, waves.active] >> np.uint32(16 if high else 0)
            data = word.astype(f"u{size}")[:, None].view(np.uint8)
        waves.memory.store(at, data)
        account(waves, at, "vector store")

    return load if kind == "LOAD" else store


# Program flow

_NOTHING = {"S_NOP", "S_DELAY_ALU", "S_CLAUSE", "S_WAITCNT_DEPCTR", "S_SLEEP"}
_NOTHING |= {"S_SET_INST_PREFETCH_DISTANCE", "S_SETPRIO"}
_DEALLOC_VGPRS = 3

# Of each wave: whether it branches.
_CONDITIONS: dict[str, Callable[[Waves], Array]] = {
    "S_BRANCH": lambda waves: np.ones(len(waves), bool),
    "S_CBRANCH_SCC0": lambda waves: ~waves.scc[:, 0],
    "S_CBRANCH_SCC1": lambda waves: waves.scc[:, 0],
    "S_CBRANCH_VCCZ": lambda waves: waves.sgpr[VCC, :, 0] == 0,
    "S_CBRANCH_VCCNZ": lambda waves: waves.sgpr[VCC, :, 0] != 0,
    "S_CBRANCH_EXECZ": lambda waves: waves.sgpr[EXEC, :, 0] == 0,
    "S_CBRANCH_EXECNZ": lambda waves: waves.sgpr[EXEC, :, 0] != 0,
}


def _program(inst: Instruction) -> Step:
    name, simm16 = inst.name, inst.simm16
    if name in _NOTHING or (name == "S_SENDMSG" and simm16 == _DEALLOC_VGPRS):
        return lambda waves: None
    if name == "S_ENDPGM":
        return Waves.end
    if name == "S_WAITCNT":
        lgkm, vm = simm16 >> 4 & 0x3F, simm16 >> 10 & 0x3F

        def wait(waves: Waves) -> None:
            waves.wait("vm", vm)
            waves.wait("lgkm", lgkm)

        return wait
    if name in _CONDITIONS:
        taken = _CONDITIONS[name]
        distance = 4 * ((simm16 ^ 0x8000) - 0x8000)

        def branch(waves: Waves) -> Waves | None:
            who = taken(waves)
            if who.all():
                waves.pc += distance
                return None
            if not who.any():
                return None
            apart = waves.split(who)
            apart.pc += distance
            return apart

        return branch
    raise Unknown(f"{name} is not executed")


def _scalar_wait(inst: Instruction) -> Step:
    counter = {"VMCNT": "vm", "LGKMCNT": "lgkm", "VSCNT": "", "EXPCNT": ""}.get(
        inst.name.removeprefix("S_WAITCNT_")
    )
    if counter is None or inst.dst is None or inst.dst.code != NULL:
        raise Unknown(f"{inst.name} with a register is not executed")
    if not counter:
        return lambda waves: None
    return lambda waves: waves.wait(counter, inst.simm16)
