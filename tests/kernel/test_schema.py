"""The op as torch sees it: schema, fake function, functionalization."""

import importlib.util
import types

import pytest
import torch

from scripts import paths
from tests.kernel import cases, op
from tests.kernel.cases import Options
from tests.kernel.families import BY_NAME

OVERLAY_MODULE = "vllm/v1/attention/ops/rdna35_rope_cache.py"


def test_schema_is_the_contracts() -> None:
    assert op.load()._schema == torch._C.parse_schema(op.SCHEMA)


def test_written_arguments_are_marked_and_no_other() -> None:
    written = {
        argument.name
        for argument in op.load()._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    }
    assert written == {"q", "k", "kv_cache", "q_out", "k_out", "v_out"}


def test_defaults_serve_a_call_without_them() -> None:
    case = cases.build(BY_NAME["qwen2.5"], 3, torch.bfloat16)
    case.memory.snapshot()
    op.load()(*case.arguments.as_tuple()[:17])
    case.memory.assert_untouched_but(case.written())


@pytest.fixture(scope="module")
def wrapper() -> types.ModuleType:
    """The overlay's module, which registers the op's fake function; loaded by
    its path, because vLLM itself need not be there."""
    op.load()
    path = paths.OVERLAY / OVERLAY_MODULE
    spec = importlib.util.spec_from_file_location("rdna35_rope_cache_wrapper", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("outputs", ["", "q", "qkv"])
@pytest.mark.parametrize("name", ["qwen3", "gemma4-sliding", "gemma4-kv-shared", "granite-nope"])
def test_opcheck(wrapper: types.ModuleType, name: str, outputs: str) -> None:
    """torch's own checks: the schema's aliases are true, the fake function
    agrees with the real one, and tracing with symbolic shapes works."""
    options = Options(outputs=frozenset(outputs), joined=False)
    a = cases.build(BY_NAME[name], 4, torch.bfloat16, options).arguments
    torch.library.opcheck(op.load(), a.as_tuple())


def test_fake_call_touches_nothing_and_returns_none(wrapper: types.ModuleType) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    a = cases.build(BY_NAME["qwen3"], 4, torch.bfloat16).arguments
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in a.as_tuple()]
        assert op.load()(*fakes) is None
