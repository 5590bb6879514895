"""Instructions as LLVM's assembler for gfx1151 reads them: for messages, and to have LLVM check
that the decoded fields give the bytes they came from."""

import dataclasses

from tests.gfx1151.emulator.decode import EXEC, LITERAL, M0, NULL, VCC, VGPR, Instruction, Operand
from tests.gfx1151.emulator.errors import Unknown

_FLOATS = {240: "0.5", 241: "-0.5", 242: "1.0", 243: "-1.0", 244: "2.0"}
_FLOATS |= {245: "-2.0", 246: "4.0", 247: "-4.0", 248: "0.15915494309189532"}

_WITHOUT_OPERANDS = {"s_endpgm", "s_code_end", "s_barrier", "s_wait_idle", "s_icache_inv"}


def text_of(inst: Instruction) -> str:
    """One line of assembly."""
    name = inst.name.lower()
    if inst.encoding == "VOPD":
        assert inst.pair is not None
        return f"{_dual(inst)} :: {_dual(inst.pair)}"
    if inst.encoding == "SOPP":
        return name if name in _WITHOUT_OPERANDS else f"{name} {inst.simm16:#x}"
    if inst.encoding == "SOPK":
        return _with_constant(inst)
    if inst.encoding == "SMEM":
        return _scalar_memory(inst)
    if inst.encoding == "GLOBAL":
        return _global(inst)
    if inst.encoding.startswith("SOP"):
        operands = ([inst.dst] if inst.dst else []) + list(inst.srcs)
        if name.startswith("s_fmamk"):
            texts = [_operand(each) for each in operands]
            return f"{name} {', '.join([*texts[:2], f'{inst.literal:#x}', texts[2]])}"
        texts = [_operand(each) for each in operands]
        if name.startswith("s_fmaak"):
            texts.append(f"{inst.literal:#x}")
        return f"{name} {', '.join(texts)}"
    return _vector(inst)


def _with_constant(inst: Instruction) -> str:
    parts = [f"{inst.simm16:#x}"]
    if inst.dst is not None:
        parts.insert(len(parts) if inst.name == "S_SETREG_B32" else 0, _operand(inst.dst))
    if inst.literal is not None:
        parts.append(f"{inst.literal:#x}")
    return f"{inst.name.lower()} {', '.join(parts)}"


def _operand(operand: Operand | None, halves: bool = False) -> str:
    assert operand is not None
    code, words = operand.code, operand.words
    if code >= VGPR:
        text = _span("v", code - VGPR, words)
        if halves and operand.bits == 16:
            text += ".h" if operand.half else ".l"
    elif code < VCC:
        text = _span("s", code, words)
    elif code in (VCC, EXEC):
        text = {VCC: "vcc", EXEC: "exec"}[code] + ("" if words == 2 else "_lo")
    elif code in (VCC + 1, EXEC + 1):
        text = {VCC + 1: "vcc_hi", EXEC + 1: "exec_hi"}[code]
    elif code in (NULL, M0):
        text = {NULL: "null", M0: "m0"}[code]
    elif 108 <= code < 124:
        text = _span("ttmp", code - 108, words)
    elif code == LITERAL:
        text = f"{operand.literal:#x}"
    elif 128 <= code <= 192:
        text = str(code - 128)
    elif 193 <= code <= 208:
        text = str(192 - code)
    elif code in _FLOATS:
        text = _FLOATS[code]
    elif code == 253:
        text = "src_scc"
    else:
        raise Unknown(f"the operand {code}")
    if operand.absolute:
        text = f"|{text}|"
    if operand.negated:
        # A minus sign before a number is part of it.
        text = f"neg({text})" if not text[0].isalpha() and text[0] != "|" else f"-{text}"
    return text


def _span(letter: str, first: int, words: int) -> str:
    return f"{letter}{first}" if words == 1 else f"{letter}[{first}:{first + words - 1}]"


def _scalar_memory(inst: Instruction) -> str:
    base, offset = inst.srcs
    parts = [_operand(inst.dst), _operand(base)]
    if offset.code == NULL:
        parts.append(f"{inst.offset:#x}")
    else:
        parts.append(_operand(offset) + (f" offset:{inst.offset:#x}" if inst.offset else ""))
    return " ".join([f"{inst.name.lower()} {', '.join(parts)}", *inst.cache])


def _global(inst: Instruction) -> str:
    parts = [_operand(inst.dst)] if inst.dst else []
    parts += [_operand(source) for source in inst.srcs]
    parts.append(_operand(inst.saddr) if inst.saddr else "off")
    offset = [f"offset:{inst.offset}"] if inst.offset else []
    return " ".join([f"{inst.name.lower()} {', '.join(parts)}", *offset, *inst.cache])


def _dual(inst: Instruction) -> str:
    name = inst.name.lower().replace("v_", "v_dual_", 1)
    sources = [source for source in inst.srcs if not source.lanes]
    operands = [_operand(inst.dst), *(_operand(source) for source in sources)]
    if "fmamk" in name:
        operands.insert(2, f"{inst.literal:#x}")
    if "fmaak" in name:
        operands.append(f"{inst.literal:#x}")
    return f"{name} {', '.join(operands)}"


def _vector(inst: Instruction) -> str:
    name = inst.name.lower()
    packed = inst.encoding == "VOP3P"
    if inst.dpp is not None:
        name += "_e64_dpp" if inst.long else "_dpp"
    elif inst.encoding in ("VOP1", "VOP2", "VOPC"):
        name += "" if _without_suffix(name) else "_e32"
    elif inst.long:
        name += "_e64"
    dst = inst.dst
    assert dst is not None
    implied = inst.encoding in ("VOPC", "VOP2") or name.startswith("v_div_fmas")
    writes_exec = "v_cmpx" in name
    operands = [] if writes_exec else [_operand(dst, True)]
    if inst.sdst is not None:
        operands.append(_operand(inst.sdst))
    sources = [s for s in inst.srcs if not (implied and s.lanes and "_co_ci_" not in name)]
    if "cndmask" in name and inst.encoding == "VOP2":
        sources = list(inst.srcs)
    if packed and "fma_mix" not in name:  # neg_lo says it
        sources = [dataclasses.replace(source, negated=False) for source in sources]
    if "fma_mix" in name:
        sources = [
            dataclasses.replace(source, absolute=bool(inst.neg_hi >> i & 1))
            for i, source in enumerate(sources)
        ]
    operands += [_operand(source, True) for source in sources]
    if "fmamk" in name:
        operands.insert(2, f"{inst.literal:#x}")
    if "fmaak" in name:
        operands.append(f"{inst.literal:#x}")
    parts = [f"{name} {', '.join(operands)}"]
    parts += _modifiers(inst, packed)
    return " ".join(parts)


def _without_suffix(name: str) -> bool:
    return "fmamk" in name or "fmaak" in name


def _modifiers(inst: Instruction, packed: bool) -> list[str]:
    parts = []
    count = len(inst.srcs)

    def bits(value: int, total: int) -> str:
        return "[" + ",".join(str(value >> i & 1) for i in range(total)) + "]"

    if packed:
        mixed = inst.name.startswith("V_FMA_MIX")
        if inst.op_sel:
            parts.append(f"op_sel:{bits(inst.op_sel, count)}")
        if inst.op_sel_hi != (0 if mixed else 7):
            parts.append(f"op_sel_hi:{bits(inst.op_sel_hi, count)}")
        negated = sum(source.negated << i for i, source in enumerate(inst.srcs))
        if negated and not mixed:
            parts.append(f"neg_lo:{bits(negated, count)}")
        if inst.neg_hi and not mixed:
            parts.append(f"neg_hi:{bits(inst.neg_hi, count)}")
    elif "PERMLANE" in inst.name and inst.op_sel:
        parts.append(f"op_sel:{bits(inst.op_sel, 2)}")
    if inst.clamp:
        parts.append("clamp")
    if inst.omod:
        parts.append({1: "mul:2", 2: "mul:4", 3: "div:2"}[inst.omod])
    if inst.dpp is not None:
        dpp = inst.dpp
        parts.append(_control(dpp.control))
        parts.append(f"row_mask:{dpp.row_mask:#x} bank_mask:{dpp.bank_mask:#x}")
        if dpp.bound_control:
            parts.append("bound_ctrl:1")
        if dpp.fetch_inactive:
            parts.append("fi:1")
    return parts


def _control(control: int) -> str:
    if control <= 0xFF:
        return f"quad_perm:[{','.join(str(control >> 2 * i & 3) for i in range(4))}]"
    names = {0x100: "row_shl", 0x110: "row_shr", 0x120: "row_ror"}
    names |= {0x150: "row_share", 0x160: "row_xmask"}
    if control in (0x140, 0x141):
        return "row_mirror" if control == 0x140 else "row_half_mirror"
    return f"{names[control & 0x1F0]}:{control & 0xF}"
