"""vLLM's own norm, RoPE and cache writer, without vLLM's installation.

The files are vLLM's, unchanged. What they import of the rest of vLLM, which needs some thirty
packages, stands in here: the configuration (custom ops off, as with Inductor), the platform (that
of torch), and names that the measured code never calls.
"""

import dataclasses
import enum
import importlib
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


@dataclasses.dataclass(frozen=True)
class VllmModules:
    """RMSNorm and GemmaRMSNorm: modules on x [..., D]. rotate: RotaryEmbedding's plain function of
    (positions [T], q [T, Hq * D], k [T, Hkv * D], D, rot, table, is_neox). MRotaryEmbedding: a
    module on (positions [3, T], q, k). write_cache: the Triton writer of (k, v [T, Hkv, D],
    k cache, v cache [blocks, block, Hkv, D], slots [T], ...)."""

    RMSNorm: type[torch.nn.Module]
    GemmaRMSNorm: type[torch.nn.Module]
    rotate: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    MRotaryEmbedding: Any
    write_cache: Callable[..., None] | None


def load(folder: Path) -> VllmModules:
    """The modules from a folder with the files of vLLM's package (scripts.bench.sources).

    For a process that has not imported vllm. write_cache is None where there is no Triton.
    """
    if "vllm" in sys.modules:
        raise RuntimeError("this process has vllm already; load the files in one of their own")
    sys.dont_write_bytecode = True
    packages = (
        "",
        ".model_executor",
        ".model_executor.layers",
        ".model_executor.layers.rotary_embedding",
        ".v1",
        ".v1.attention",
        ".v1.attention.ops",
    )
    for package in packages:
        path = folder.joinpath(*package.split(".")[1:])
        _stand_in(f"vllm{package}", __path__=[str(path)])
    _stand_in_for_the_rest()
    ir = importlib.import_module("vllm.ir")
    # Traced through, as vLLM's lowering pass leaves it to Inductor.
    ir.set_default_torch_wrap(False)
    ir.ops.rms_norm.set_default(["native"])
    layers = "vllm.model_executor.layers"
    norms = importlib.import_module(f"{layers}.layernorm")
    rotary = importlib.import_module(f"{layers}.rotary_embedding.base")
    write_cache = _writer()  # M-RoPE's file names Triton too
    sections = importlib.import_module(f"{layers}.rotary_embedding.mrope")
    return VllmModules(
        norms.RMSNorm,
        norms.GemmaRMSNorm,
        rotary.RotaryEmbedding.forward_static,
        sections.MRotaryEmbedding,
        write_cache,
    )


def writer_of(modules: VllmModules) -> Callable[..., None]:
    """The cache writer; ModuleNotFoundError where there is no Triton."""
    if modules.write_cache is None:
        raise ModuleNotFoundError("no triton", name="triton")
    return modules.write_cache


def _writer() -> Callable[..., None] | None:
    try:
        triton = importlib.import_module("triton")
    except ModuleNotFoundError:
        without = types.SimpleNamespace(jit=lambda function: function)
        _stand_in("vllm.triton_utils", triton=without, tl=types.SimpleNamespace(constexpr=object))
        return None
    _stand_in("vllm.triton_utils", triton=triton, tl=importlib.import_module("triton.language"))
    module = importlib.import_module("vllm.v1.attention.ops.triton_reshape_and_cache_flash")
    return module.triton_reshape_and_cache_flash


def _stand_in_for_the_rest() -> None:
    configuration = types.SimpleNamespace(
        custom_ops=["none"], enabled_custom_ops=set(), disabled_custom_ops=set()
    )
    platform = types.SimpleNamespace(
        is_rocm=lambda: torch.version.hip is not None,
        is_cuda=lambda: torch.version.cuda is not None,
        is_cpu=lambda: not torch.cuda.is_available(),
        is_xpu=lambda: False,
        is_tpu=lambda: False,
        is_out_of_tree=lambda: False,
        is_fp8_fnuz=lambda: False,
        fp8_dtype=lambda: torch.float8_e4m3fn,
        has_device_capability=_has_capability,
    )
    _stand_in("vllm.config", get_cached_compilation_config=lambda: configuration, __path__=[])
    # Imported with every module, and looked at by those alone that compile themselves.
    _stand_in("vllm.config.compilation", CompilationMode=enum.Enum("CompilationMode", "NONE"))
    _stand_in("vllm.platforms", current_platform=platform)
    _stand_in("vllm.kernels")
    _stand_in("vllm._aiter_ops", rocm_aiter_ops=types.SimpleNamespace(is_enabled=lambda: False))
    _stand_in("vllm.utils", __path__=[])
    _stand_in("vllm.utils.torch_utils", direct_register_custom_op=_not_called)
    _stand_in(
        "vllm.model_executor.utils",
        set_weight_attrs=lambda weight, attributes: None,
        maybe_disable_graph_partition=_not_called,
    )
    _stand_in("vllm.model_executor.determinism", __path__=[])
    _stand_in(
        "vllm.model_executor.determinism.batch_invariant", rms_norm_batch_invariant=_not_called
    )
    quantization = "vllm.model_executor.layers.quantization"
    for package in (quantization, f"{quantization}.utils"):
        _stand_in(package, __path__=[])
    _stand_in(
        f"{quantization}.utils.quant_utils",
        FP8_DTYPE=torch.float8_e4m3fn,
        get_fp8_min_max=lambda: (-448.0, 448.0),
    )
    _stand_in(
        "vllm.v1.kv_cache_interface",
        KVQuantMode=enum.Enum("KVQuantMode", "NONE"),
        is_quantized_kv_cache=lambda dtype: dtype.startswith("fp8"),
    )


def _has_capability(wanted: int) -> bool:
    """Whether the GPU's version, 90 for sm_90 and 115 for gfx1151, is at least what is wanted."""
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor >= wanted


def _not_called(*arguments: object, **named: object) -> None:
    """For what is imported and is no part of what is measured (a registration, at most)."""


def _stand_in(name: str, **contents: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(contents)
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)
