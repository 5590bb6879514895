"""Two releases of a small vLLM, for what moves the series from one to the other."""

from pathlib import Path

from scripts.pin import load_pin
from scripts.repin.state import Project
from tests.packaging.small_project import VLLM, SmallProject, write_sdist

NEW = "0.34.0"
# What a release says of itself, and small_project's vLLM does not.
MADE_FROM = {"0.33.0": "4ba787ec9", NEW: "0123456789"}
DATES = {"0.33.0": load_pin().source_date_epoch, NEW: 1_800_000_000}


def facts(version: str, files: dict[str, str]) -> dict[str, str]:
    """The files of a release, with those by which it is known."""
    return files | {
        "setup.py": "",
        "PKG-INFO": f"Name: vllm\nVersion: {version}\n",
        "vllm/_version.py": f"__commit_id__ = commit_id = 'g{MADE_FROM[version]}'\n",
    }


def sdist(folder: Path, version: str, files: dict[str, str]) -> Path:
    """A release's source distribution, below a folder of its version."""
    path = folder / f"sdist-{version}" / f"vllm-{version}.tar.gz"
    path.parent.mkdir(exist_ok=True)
    write_sdist(path, version, facts(version, files), DATES[version])
    return path


def with_pin_file(project: SmallProject) -> tuple[Project, Path]:
    """What moves the project's pin; and the source distribution of the vLLM that it is on."""
    old = sdist(project.root, "0.33.0", VLLM)
    project.upstream_is(old)
    pin = project.root / "pin.toml"
    real = Path("pin.toml").read_text(encoding="utf-8")
    pin.write_text(real.replace(load_pin().sha256, project.pin.sha256), encoding="utf-8")
    work = project.root / "repin"
    return Project(pin, project.folders, project.tree, project.cache, work), old
