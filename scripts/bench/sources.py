"""The Python files of vLLM and AITER that the op is compared with, collected in one folder.

    python -m scripts.bench.sources

fills build/bench/sources, the folder to bring along to a GPU machine without a network: vLLM's
files from the checkout, AITER's from its wheel on PyPI. `make bench` does it too, with what it
finds; what is missing then is left out of the tables.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from scripts import errors, paths
from scripts.errors import Fault

FOLDER = paths.BUILD / "bench" / "sources"

VLLM = (
    "envs.py",
    "ir/__init__.py",
    "ir/op.py",
    "ir/ops/__init__.py",
    "ir/ops/activation.py",
    "ir/ops/layernorm.py",
    "ir/tolerances.py",
    "ir/util.py",
    "logger.py",
    "logging_utils/__init__.py",
    "logging_utils/formatter.py",
    "logging_utils/lazy.py",
    "logging_utils/log_time.py",
    "logging_utils/torch_tensor.py",
    "logging_utils/uvicorn_logging.py",
    "model_executor/custom_op.py",
    "model_executor/layers/layernorm.py",
    "model_executor/layers/rotary_embedding/base.py",
    "model_executor/layers/rotary_embedding/common.py",
    "model_executor/layers/rotary_embedding/mrope.py",
    "model_executor/layers/rotary_embedding/yarn_scaling_rope.py",
    "v1/attention/ops/triton_reshape_and_cache_flash.py",
)
VLLM_CSRC = ("pos_encoding_kernels.cu",)

AITER_VERSION = "0.1.7.post2.dev18"
_AITER_WHEEL = f"amd_aiter-{AITER_VERSION}-py3-none-any.whl"
AITER = (
    "ops/triton/_triton_kernels/fused_kv_cache.py",
    "ops/triton/_triton_kernels/rope.py",
    "ops/triton/fused_kv_cache.py",
    "ops/triton/rope.py",
    "ops/triton/utils/logger.py",
)


def vllm_folder(checkout: Path = paths.CHECKOUT, folder: Path = FOLDER) -> Path | None:
    """The folder with vLLM's files, as new as the checkout's; None where neither is there."""
    target = folder / "vllm"
    files = {target / name: checkout / "vllm" / name for name in VLLM}
    files |= {target / "csrc" / name: checkout / "csrc" / name for name in VLLM_CSRC}
    if (checkout / "vllm").is_dir():
        for path, source in files.items():
            _put(path, source.read_bytes())
    return target if all(path.is_file() for path in files) else None


def aiter_folder(cache: Path = paths.CACHE, folder: Path = FOLDER) -> Path | None:
    """The folder with AITER's files, from its wheel in the cache; None where neither is there."""
    target = folder / "aiter"
    wheel = cache / _AITER_WHEEL
    if wheel.is_file():
        with zipfile.ZipFile(wheel) as archive:
            for name in AITER:
                _put(target / name, archive.read(f"aiter/{name}"))
    return target if all((target / name).is_file() for name in AITER) else None


def _put(path: Path, content: bytes) -> None:
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)


def download_aiter(cache: Path = paths.CACHE) -> None:
    """Puts AITER's wheel (40 MB) into the cache, by pip."""
    if (cache / _AITER_WHEEL).is_file():
        return
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="incoming-") as incoming:
        requirement = f"amd-aiter=={AITER_VERSION}"
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
        done = subprocess.run(
            [*command, "--only-binary=:all:", "--dest", incoming, requirement],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise Fault(f"pip does not download {requirement}: {reason}")
        shutil.move(Path(incoming) / _AITER_WHEEL, cache / _AITER_WHEEL)


def main() -> None:
    """Collects the files."""
    download_aiter()
    if vllm_folder() is None:
        raise Fault(f"{paths.CHECKOUT} has no vLLM; run `make checkout`")
    aiter_folder()
    where = FOLDER.relative_to(paths.ROOT)
    print(f"sources: {where}: {len(VLLM + VLLM_CSRC)} files of vLLM, {len(AITER)} of AITER")


if __name__ == "__main__":
    errors.run("sources", main)
