"""What is known of scalar registers along one path: enough to tell which branches it can take.

The compiler keeps "which way did we come" in a scalar register, 0 or -1, and branches on it where
ways have met: a path that goes on the other way does not exist. Nothing else is worked out; what is
not known may be anything.
"""

import dataclasses
import re

from scripts.budget.assembly import Instruction

_Known = tuple[tuple[str, bool | None], ...]

# Two registers written: the result and a carry or a condition.
_TWO_RESULTS = re.compile(r"v_(div_scale|(add|sub|subrev)_co|mad_[iu]64)_")
_NO_RESULT = re.compile(r"s_(cmp|bitcmp|cbranch|branch|wait|delay|clause|nop|endpgm)|\w+_store_")


@dataclasses.dataclass(frozen=True)
class Facts:
    """known: register -> all ones (True), zero (False), or either of the two (None); vcc_is: the
    register that vcc was made from and whether it is its inverse; masks: the registers that hold a
    mask with a lane in it, as exec does until it is narrowed."""

    known: _Known = ()
    vcc_is: tuple[str, bool] | None = None
    masks: frozenset[str] = frozenset({"exec_lo"})

    def after(self, instruction: Instruction) -> "Facts":
        """What is known behind an instruction."""
        operands = [word.strip() for word in instruction.operands.split(",")]
        name = instruction.name
        if not operands[0] or _NO_RESULT.match(name):
            return self
        value: tuple[bool | None] | None = None  # in a tuple, where there is one
        vcc_is = None
        if name == "s_mov_b32" and operands[1] in ("0", "-1"):
            value = (operands[1] == "-1",)
        elif name == "s_mov_b32" and operands[1] in dict(self.known):
            value = (dict(self.known)[operands[1]],)
        elif name == "s_cselect_b32" and sorted(operands[1:]) == ["-1", "0"]:
            value = (None,)
        elif name in ("s_and_b32", "s_and_not1_b32") and operands[1] == "exec_lo":
            inverse = name == "s_and_not1_b32"
            source = operands[2]
            if operands[0] == "vcc_lo" and source in dict(self.known):
                vcc_is = (source, inverse)
        elif name == "s_xor_b32" and operands[2] == "-1" and operands[1] in dict(self.known):
            was = dict(self.known)[operands[1]]
            value = (None if was is None else not was,)
        has_lanes = False
        if name in ("s_mov_b32", "s_and_saveexec_b32") and len(operands) > 1:
            # What exec was is saved.
            source = "exec_lo" if "saveexec" in name else operands[1]
            has_lanes = source in self.masks
        elif name == "s_or_b32":
            has_lanes = not self.masks.isdisjoint(operands[1:])
        written = operands[:2] if _TWO_RESULTS.match(name) else operands[:1]
        if "saveexec" in name or "cmpx" in name:
            written = [*written, "exec_lo"]
        facts = self._without([r for operand in written for r in _registers(operand)])
        if value is not None:
            facts = facts._with(operands[0], value[0])
        if has_lanes:
            facts = dataclasses.replace(facts, masks=facts.masks | {operands[0]})
        return dataclasses.replace(facts, vcc_is=vcc_is) if vcc_is else facts

    def taken(self, branch: Instruction) -> "Facts | None":
        """What is known where the branch is taken; None: it cannot be."""
        return self._decided(branch, True)

    def passed(self, branch: Instruction) -> "Facts | None":
        """What is known where the branch is not taken; None: it always is."""
        return None if branch.name == "s_branch" else self._decided(branch, False)

    def _decided(self, branch: Instruction, taken: bool) -> "Facts | None":
        if branch.name in ("s_cbranch_execnz", "s_cbranch_execz") and "exec_lo" in self.masks:
            return self if taken == (branch.name == "s_cbranch_execnz") else None
        if branch.name not in ("s_cbranch_vccnz", "s_cbranch_vccz") or self.vcc_is is None:
            return self
        register, inverse = self.vcc_is
        # Of the register: vcc is exec where it is set, and a wave that runs has lanes.
        wanted = (taken == (branch.name == "s_cbranch_vccnz")) != inverse
        known = dict(self.known).get(register)
        if known is not None:
            return self if known == wanted else None
        return self._with(register, wanted)

    def _with(self, register: str, value: bool | None) -> "Facts":
        known = dict(self.known) | {register: value}
        return dataclasses.replace(self, known=tuple(sorted(known.items())))

    def _without(self, registers: list[str]) -> "Facts":
        known = tuple(item for item in self.known if item[0] not in registers)
        lost = self.vcc_is is not None and (
            "vcc_lo" in registers or "exec_lo" in registers or self.vcc_is[0] in registers
        )
        return Facts(known, None if lost else self.vcc_is, self.masks.difference(registers))


def _registers(operand: str) -> list[str]:
    """s3 -> s3; s[4:6] -> s4, s5, s6; vcc and exec by their lower half; none for the others."""
    if found := re.fullmatch(r"s\[(\d+):(\d+)\]", operand):
        return [f"s{n}" for n in range(int(found[1]), int(found[2]) + 1)]
    if operand in ("vcc", "exec"):
        return [f"{operand}_lo"]
    return [operand] if re.fullmatch(r"s\d+|vcc_lo|exec_lo", operand) else []
