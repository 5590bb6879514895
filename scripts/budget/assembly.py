"""The kernels in the compiler's assembly of one architecture: code, registers, memory."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from scripts.errors import Fault


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One instruction: `s_waitcnt`, `vmcnt(0) lgkmcnt(1)`."""

    name: str
    operands: str

    @property
    def kind(self) -> str:
        """valu, salu, load, store, branch, wait or other (hints, ends)."""
        if self.name.startswith("s_waitcnt"):
            return "wait"
        if self.name.startswith(("s_branch", "s_cbranch", "s_setpc", "s_swappc", "s_call")):
            return "branch"
        if re.match(r"(global|flat|buffer|scratch|ds)_.*(store|write|atomic)", self.name):
            return "store"
        if re.match(r"(global|flat|buffer|scratch|ds|s)_(buffer_)?(load|read)", self.name):
            return "load"
        if self.name in ("s_clause", "s_delay_alu", "s_nop", "s_endpgm", "s_code_end", "s_sendmsg"):
            return "other"
        return "valu" if self.name.startswith("v_") else "salu"


@dataclasses.dataclass(frozen=True)
class Block:
    """Instructions without a label between them; a branch may stand anywhere in it."""

    label: str
    instructions: tuple[Instruction, ...]


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One kernel. Bytes of code, of LDS (group) and of scratch (private segment)."""

    name: str
    blocks: tuple[Block, ...]
    vgprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch_bytes: int
    lds_bytes: int
    code_bytes: int

    @property
    def head_dim(self) -> int:
        """D, from the name: rdna35_rope_cache_bf16_128_norm."""
        found = re.search(r"_(\d+)(_|$)", self.name)
        if found is None:
            raise Fault(f"kernel {self.name} has no head size in its name")
        return int(found[1])

    def counts(self) -> Mapping[str, int]:
        """Instructions by kind."""
        counts = dict.fromkeys(("valu", "salu", "load", "store", "branch", "wait", "other"), 0)
        for block in self.blocks:
            for instruction in block.instructions:
                counts[instruction.kind] += 1
        return counts


def read(path: Path) -> list[Kernel]:
    """The kernels of a file that clang wrote for AMDGPU with -S. Fault where there are none."""
    text = path.read_text(encoding="utf-8")
    metadata = {item["name"]: item for item in _metadata(text)}
    kernels = []
    for name, body, after in _functions(text):
        if name not in metadata:
            continue
        facts = metadata[name]
        size = re.search(r"; codeLenInByte = (\d+)", after)
        if size is None:
            raise Fault(f"{path}: the compiler does not say how long {name} is")
        kernels.append(
            Kernel(
                name=name,
                blocks=tuple(_blocks(name, body)),
                vgprs=int(facts["vgpr_count"]),
                sgprs=int(facts["sgpr_count"]),
                vgpr_spills=int(facts["vgpr_spill_count"]),
                sgpr_spills=int(facts["sgpr_spill_count"]),
                scratch_bytes=int(facts["private_segment_fixed_size"]),
                lds_bytes=int(facts["group_segment_fixed_size"]),
                code_bytes=int(size[1]),
            )
        )
    if not kernels or len(kernels) != len(metadata):
        raise Fault(
            f"{path}: code for {len(kernels)} of the {len(metadata)} kernels in its metadata"
        )
    return kernels


def _metadata(text: str) -> Iterator[dict[str, str]]:
    """The fields of each kernel in the metadata."""
    _, _, rest = text.partition("amdhsa.kernels:")
    listed = rest.partition(".end_amdgpu_metadata")[0]
    for item in re.split(r"^  - ", listed, flags=re.MULTILINE)[1:]:
        fields = dict(re.findall(r"^ *\.(\w+): +(\S+)$", item, flags=re.MULTILINE))
        if "vgpr_count" in fields:
            yield fields


def _functions(text: str) -> Iterator[tuple[str, str, str]]:
    """(name, code, comments behind it) of each function."""
    pattern = re.compile(
        r"^(\w+):[^\n]*; @\1\n(.*?)^\.Lfunc_end\d+:(.*?)(?=^\w+:[^\n]*; @|\Z)", re.M | re.S
    )
    for found in pattern.finditer(text):
        yield found[1], found[2], found[3]


def _blocks(name: str, body: str) -> Iterator[Block]:
    label, instructions = name, list[Instruction]()
    for line in body.splitlines():
        if found := re.match(r"(\.LBB\w+):", line):
            yield Block(label, tuple(instructions))
            label, instructions = found[1], []
        elif found := re.match(r"\t([a-z]\w+)\s*([^;]*)", line):
            instructions.append(Instruction(found[1], found[2].strip()))
        elif re.match(r"\t\.(section|amdhsa_kernel)", line):
            break
    yield Block(label, tuple(instructions))
