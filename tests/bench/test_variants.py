"""What the bench compares does the op's work: on CPU tensors, vLLM's files from the checkout."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from scripts import paths
from scripts.bench import aiter, defaults, inputs, sources, variants
from scripts.bench.shapes import SHAPES, Shape, choose_shapes
from scripts.errors import Fault

CPU = torch.device("cpu")


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_op_passes_the_check_of_the_bench(op_library: Path, shape: Shape) -> None:
    ours = variants.ours(op_library)
    for tokens, context in ((1, 128), (3, 1024)):
        for one in inputs.make_sets(shape, tokens, context, 2, CPU):
            ours.verify(one)


def refused(op_library: Path, one: inputs.Inputs, **changed: object) -> None:
    """Asserts that the check lets the op pass on a set, and not with one of its tensors changed."""
    ours = variants.ours(op_library)
    other = dataclasses.replace(one, **changed)  # type: ignore[arg-type]

    def outputs(i: inputs.Inputs) -> tuple[torch.Tensor, torch.Tensor]:
        ours.run(other)  # with the tensors of `i` but for one
        return i.q_out, i.k_out

    with pytest.raises(Fault, match="ours is not timed"):
        dataclasses.replace(ours, outputs=outputs).verify(one)
    ours.verify(one)


@pytest.mark.parametrize("wrong", ["positions", "k_weight", "slot_mapping", "v"])
def test_check_refuses_wrong_results(op_library: Path, wrong: str) -> None:
    shape = next(shape for shape in SHAPES if shape.norm == "rms")
    (one,) = inputs.make_sets(shape, 4, 128, 1, CPU)
    assert one.k_weight is not None
    changed = {
        "positions": {"positions": one.positions + 1},
        "k_weight": {"k_weight": one.q_weight},
        "slot_mapping": {"slot_mapping": one.slot_mapping.flip(0)},
        "v": {"qkv": torch.cat([one.qkv[:, :-1], 2 * one.qkv[:, -1:]], -1)},
    }[wrong]
    refused(op_library, one, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["28/4/128+mrope", "32/8/128+norm+mrope"])
@pytest.mark.parametrize("row", [0, 1, 2])
def test_check_refuses_a_wrong_row_of_positions(op_library: Path, name: str, row: int) -> None:
    (one,) = inputs.make_sets(choose_shapes(name)[0], 4, 128, 1, CPU)
    positions = one.positions.clone()
    positions[row] += 100  # the slow pairs turn too little by less
    refused(op_library, one, positions=positions)


@pytest.mark.parametrize("name", ["k_scale", "v_scale"])
def test_check_refuses_a_wrong_scale(op_library: Path, name: str) -> None:
    (one,) = inputs.make_sets(choose_shapes("32/8/128+rope+fp8")[0], 4, 128, 1, CPU)
    refused(op_library, one, **{name: getattr(one, name) * 1.05})


def test_check_refuses_the_sections_of_another_layout(op_library: Path) -> None:
    (one,) = inputs.make_sets(choose_shapes("32/8/128+norm+mrope")[0], 4, 128, 1, CPU)
    refused(op_library, one, shape=dataclasses.replace(one.shape, mrope_interleaved=False))


def test_m_rope_has_three_rows_of_positions_as_vllm_keeps_them() -> None:
    for tokens in (1, 33):
        for one in inputs.make_sets(choose_shapes("28/4/128+mrope")[0], tokens, 1024, 2, CPU):
            assert one.positions.shape == (3, tokens) and one.positions.stride() == (8193, 1)
            assert all(len(set(column)) == 3 for column in one.positions.T.tolist())
            assert one.positions.max() < inputs.MAX_POSITIONS


def test_sets_have_memory_and_slots_of_their_own() -> None:
    sets = inputs.make_sets(SHAPES[0], 33, 1024, 3, CPU)
    for one in sets:
        assert one.tokens == 33 and one.positions.shape == one.slot_mapping.shape == (33,)
        assert len(set(one.slot_mapping.tolist())) == 33
        assert one.positions.min() >= 1024 and one.positions.max() < 1024 + 64
        slots = one.kv_cache.shape[0] * inputs.BLOCK_SIZE
        assert one.slot_mapping.min() >= 0 and one.slot_mapping.max() < slots
    assert len({one.qkv.data_ptr() for one in sets}) == 3
    assert len({tuple(one.slot_mapping.tolist()) for one in sets}) == 3


def test_aiter_serves_whole_heads_of_a_power_of_two_without_the_norm() -> None:
    assert [shape.name for shape in SHAPES if aiter.serves(shape)] == [
        "32/8/128+rope",
        "14/2/64+rope",
        "8/1/256+rope",
        "16/2/512+rope",
        "32/32/128+rope",
        "32/8/128+pairs",
    ]


def test_defaults_serve_large_steps_of_one_position_and_a_cache_of_bf16() -> None:
    served = [shape for shape in SHAPES if defaults.serves(shape, 257)]
    assert served == [shape for shape in SHAPES if shape.is_plain and shape.is_neox]
    assert not any(defaults.serves(shape, 256) for shape in SHAPES)


def test_vllm_s_rotary_kernel_is_taken_from_its_source(checkout: Path, tmp_path: Path) -> None:
    file = Path(vllm_files(checkout, tmp_path)) / "csrc" / "pos_encoding_kernels.cu"
    original = file.read_text(encoding="utf-8")
    made = defaults.rotary_source(original)
    device_code = original[
        original.index("namespace vllm") : original.index("}  // namespace vllm")
    ]
    assert device_code in made and "torch" not in made


UNFUSED = """
import json, sys
import torch
from pathlib import Path
from scripts.bench import check, inputs, unfused, vllm_modules
from scripts.bench.shapes import SHAPES

compiling = sys.argv[2] == "compiled"
modules = vllm_modules.load(Path(sys.argv[1]))
unfused.OPTIONS = {}  # combo kernels are not for the CPU
worst, cpu = {}, torch.device("cpu")
some = [s for i, s in enumerate(SHAPES) if i % 5 == 1 or s.mrope_section]
for shape in some if compiling else SHAPES:
    function = unfused.prologue(modules, shape, inputs.make_weights(shape, cpu))
    with torch.no_grad():
        if compiling:
            one = inputs.make_sets(shape, 1, 1, 1, cpu)[0]
            function = unfused.compiled(function, one.qkv, one.positions, one.cos_sin_cache)
        for tokens in (1, 2, 33):
            one = inputs.make_sets(shape, tokens, 128, 1, cpu)[0]
            q, k, v = function(one.qkv, one.positions, one.cos_sin_cache)
            want_q, rows = check.expected(one)
            want_k, want_v = rows.chunk(2, -1)
            assert q.shape == want_q.shape and k.shape == want_k.shape and torch.equal(v, want_v)
            found = max(check.distance(q, want_q), check.distance(k, want_k))
            worst[shape.name] = max(found, worst.get(shape.name, 0.0))
graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
print(json.dumps({"worst": worst, "graphs": graphs}))
"""

OPTIONS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform
vllm.platforms._current_platform = CpuPlatform()
from vllm.config import CompilationConfig
CpuPlatform.is_cpu = lambda self: False  # as on a GPU
print(json.dumps(CompilationConfig().inductor_compile_config, default=str))
"""


def run(code: str, *arguments: str) -> dict[str, object]:
    """The last line that a process of its own prints, as JSON."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def vllm_files(checkout: Path, folder: Path) -> str:
    """vLLM's files as the bench brings them along."""
    found = sources.vllm_folder(checkout, folder)
    assert found is not None
    return str(found)


def test_unfused_modules_do_the_op_s_work(checkout: Path, tmp_path: Path) -> None:
    found = run(UNFUSED, vllm_files(checkout, tmp_path), "eager")
    worst = found["worst"]
    assert isinstance(worst, dict) and len(worst) == len(SHAPES)
    assert max(worst.values()) <= 2, worst


@pytest.mark.slow
def test_one_compiled_graph_serves_every_number_of_tokens(checkout: Path, tmp_path: Path) -> None:
    found = run(UNFUSED, vllm_files(checkout, tmp_path), "compiled")
    worst = found["worst"]
    assert isinstance(worst, dict) and len(worst) == 6
    assert worst.keys() >= {shape.name for shape in SHAPES if shape.mrope_section}
    assert max(worst.values()) <= 2, worst
    assert found["graphs"] == len(worst)


def test_inductor_s_options_are_vllm_s(checkout: Path) -> None:
    options = run(OPTIONS, str(checkout))
    from scripts.bench import unfused

    assert {name: options.get(name) for name in unfused.OPTIONS} == unfused.OPTIONS
    others = set(options) - set(unfused.OPTIONS) - {"enable_auto_functionalized_v2"}
    assert not others, "options of vLLM that the bench does not set"
