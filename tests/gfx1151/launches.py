"""Launches as the library makes them: the launcher packs arguments for a stand-in HIP runtime."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.gfx1151.emulator.launch import Launch
from tests.gfx1151.emulator.memory import Given
from tests.kernel import cases, standin
from tests.kernel.cases import Case, Options
from tests.kernel.families import FAMILIES, Family
from tests.kernel.op import DTYPES, HEAD_DIMS, Arguments
from tests.kernel.rope_tables import Rope

_WRITTEN_BESIDE = {"q": "q_out", "k": "k_out"}  # in place unless the other is given
_WRITTEN = {"kv_cache", "q_out", "k_out", "v_out"}


@dataclasses.dataclass(frozen=True)
class Key:
    """A case by what it is built from."""

    family: Family
    tokens: int
    dtype: torch.dtype
    options: Options = cases.DEFAULT

    def build(self) -> Case:
        """The case, the same every time."""
        device = torch.device("cpu")
        return cases.build(self.family, self.tokens, self.dtype, self.options, device=device)

    def __str__(self) -> str:
        changed = {
            field.name: getattr(self.options, field.name)
            for field in dataclasses.fields(self.options)
            if getattr(self.options, field.name) != field.default
        }
        given = "".join(
            f"-{name}={''.join(sorted(value)) if isinstance(value, frozenset) else value}"
            for name, value in changed.items()
        )
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.family.name}-{self.tokens}-{dtype}{given}"


@dataclasses.dataclass(frozen=True)
class Packed:
    """A launch, and where its process had each tensor argument: the addresses in its parameters."""

    launch: Launch
    addresses: dict[str, int]

    def tensors(self, arguments: Arguments) -> list[Given]:
        """The tensors of this process that stand for those of the launch."""
        given = []
        for name, address in self.addresses.items():
            tensor = getattr(arguments, name)
            beside = _WRITTEN_BESIDE.get(name)
            written = name in _WRITTEN or (
                beside is not None and getattr(arguments, beside) is None
            )
            given.append(Given(name, tensor, address, name not in _WRITTEN, written))
        return given


_BY_NAME = {family.name: family for family in FAMILIES}

# Every model family, with one token and with three.
FAMILY_KEYS = tuple(
    Key(family, tokens, dtype) for family in FAMILIES for tokens in (1, 3) for dtype in DTYPES
)


def _of_kernel(head_dim: int, norm: str, is_neox: bool = True) -> Family:
    name = f"any-{head_dim}-{norm or 'rope'}{'' if is_neox else '-pairs'}"
    return Family(name, 7, 2, head_dim, Rope(head_dim), norm=norm, is_neox=is_neox)


# Every head size with and without the norm, for few tokens, some and many: every kernel there is.
# And those that turn adjacent pairs.
KERNEL_KEYS = tuple(
    Key(_of_kernel(head_dim, norm, is_neox), tokens, dtype)
    for head_dim in HEAD_DIMS
    for norm in ("", "rms")
    for tokens, is_neox in ((2, True), (100, True), (400, True), (2, False))
    for dtype in DTYPES
)

_EACH = {
    "outputs": Options(outputs=frozenset("qkv")),
    "hybrid": Options(layout="BHLNC", block_size=544, block_pad=24, skip_slots=True),
    "unaligned": Options(shift=1, head_pad=3, row_pad=5, slots_mapped=3),
    "fp32-weights": Options(weights=torch.float32, joined=False, layout="LBHNC", block_size=1),
    "e4m3fn": Options(cache_dtype=torch.float8_e4m3fn, outputs=frozenset("kv"), slots_mapped=4),
    "e5m2": Options(cache_dtype=torch.float8_e5m2, outputs=frozenset("v"), layout="LBHNC"),
}
# Layouts and options that a family's default case does not have.
OPTION_KEYS = tuple(
    Key(_BY_NAME[name], 5, dtype, options)
    for name in ("qwen3", "qwen3.5", "gemma4-full", "nemotron", "norm-and-scale", "gpt-j-and-norms")
    for dtype in DTYPES
    for options in _EACH.values()
    if _BY_NAME[name].norm or options.weights is None
)
# Batches from which on M-RoPE and quantized caches go with more pairs a lane.
OPTION_KEYS += tuple(
    Key(
        dataclasses.replace(
            _of_kernel(128, norm),
            name=f"any-128-{norm or 'rope'}-mrope",
            position_rows=3,
            mrope_section=(24, 19, 21),
            mrope_interleaved=bool(norm),
        ),
        190,
        dtype,
        options,
    )
    for norm in ("", "rms")
    for dtype in DTYPES
    for options in (cases.DEFAULT, _EACH["e4m3fn"])
)
# Of each kind of kernel one, for what needs no more.
ONE_OF_EACH = tuple(
    Key(_BY_NAME[name], 3, dtype)
    for name in ("llama3", "qwen3", "gemma4-full", "norm-and-scale")
    for dtype in DTYPES
)

_PACK = """
import json
from tests.kernel.cases import Options
from tests.kernel.families import Family
from tests.kernel.rope_tables import *
for family, tokens, dtype, options in {keys}:
    arguments = cases.build(family, tokens, dtype, options, device=torch.device("cpu")).arguments
    rope_cache(*gpu(arguments, 0).as_tuple())
    print(json.dumps({{
        field.name: value.data_ptr() for field in dataclasses.fields(arguments)
        if isinstance(value := getattr(arguments, field.name), torch.Tensor)
    }}))
"""


_AT_ONCE = 100  # keys in one process, whose code is one argument of its command


def pack(keys: Sequence[Key], library: Path, scratch: Path) -> dict[Key, Packed]:
    """Has the library launch each case, and keeps what it launched."""
    hip = standin.make(library, scratch)
    packed: dict[Key, Packed] = {}
    for first in range(0, len(keys), _AT_ONCE):
        packed |= _pack(hip, keys[first : first + _AT_ONCE])
    return packed


def _pack(hip: standin.Standin, keys: Sequence[Key]) -> dict[Key, Packed]:
    listed = [(key.family, key.tokens, key.dtype, key.options) for key in keys]
    result = hip.run(_PACK.format(keys=listed), [hip.runtime("torch")[-1]])
    launches = result.named("hipModuleLaunchKernel")
    lines = result.output.splitlines()
    assert len(launches) == len(lines) == len(keys), (len(launches), len(lines), len(keys))
    return {
        key: Packed(
            Launch(
                launch["name"],
                tuple(launch["grid"]),
                launch["block"][0],
                bytes.fromhex(launch["params"]),
            ),
            json.loads(line),
        )
        for key, launch, line in zip(keys, launches, lines, strict=True)
    }
