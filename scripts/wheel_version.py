"""What a wheel of the series is called: its version, its file name, and where these are written."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from scripts.errors import Fault

LABEL = "gfx1151"
VERSION_FILE = "vllm/_version.py"

_SERIES_PART = re.compile(rf"(?:^|\.){LABEL}\.\d+$")
_VERSION_LINE = re.compile(r"^__version__ = version = .*$", re.MULTILINE)
_TUPLE_LINE = re.compile(r"^__version_tuple__ = version_tuple = .*$", re.MULTILINE)


def series_version(base: Version, number: int) -> Version:
    """The version of series `number` over `base`: 0.33.0 -> 0.33.0+gfx1151.1.

    A local part stays in front (+rocm72 -> +rocm72.gfx1151.1); an earlier series' is replaced.
    """
    local = _SERIES_PART.sub("", base.local or "")
    return Version(f"{base.public}+{local}{'.' if local else ''}{LABEL}.{number}")


def has_series(version: Version) -> bool:
    """Whether the version says that a series is already in the wheel."""
    return _SERIES_PART.search(version.local or "") is not None


def is_rocm(version: Version) -> bool:
    """Whether the local part names ROCm, as vLLM's own builds for it do."""
    return any(part.startswith("rocm") for part in (version.local or "").split("."))


@dataclass(frozen=True)
class WheelName:
    """A wheel's file name, taken apart."""

    version: Version
    tags: str  # python-abi-platform, as written

    @property
    def file_name(self) -> str:
        """The name of the wheel's file."""
        return f"vllm-{self.version}-{self.tags}.whl"

    @property
    def dist_info(self) -> str:
        """The name of the wheel's metadata folder."""
        return f"vllm-{self.version}.dist-info"


def parse_wheel_name(path: Path) -> WheelName:
    """Reads a vLLM wheel's file name (+ may be %2B, as downloads have it); Fault for any other."""
    name = unquote(path.name)
    try:
        project, version, _, _ = parse_wheel_filename(name)
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise Fault(
            f"{path}: not the file name of a wheel ({error}); give the wheel its name back"
        ) from None
    if project != "vllm":
        raise Fault(f"{path}: a wheel of {project}, not of vllm; give vLLM's")
    return WheelName(version, "-".join(name.removesuffix(".whl").split("-")[-3:]))


def metadata_version(metadata: bytes) -> str | None:
    """The Version field of METADATA, or None where it does not stand there exactly once."""
    head = metadata.partition(b"\n\n")[0].decode("utf-8", "replace")
    found = re.findall(r"^Version: *(.*?)\r?$", head, re.MULTILINE)
    return found[0] if len(found) == 1 else None


def with_metadata_version(metadata: bytes, version: Version) -> bytes:
    """METADATA with another version and every other byte kept."""
    head, gap, body = metadata.partition(b"\n\n")
    head, count = re.subn(
        rb"^Version: *[^\r\n]*", f"Version: {version}".encode(), head, flags=re.MULTILINE
    )
    if count != 1:
        raise Fault(
            f"METADATA has {count} Version fields, not one; use a wheel as vLLM's build made it"
        )
    return head + gap + body


def version_file_versions(source: str) -> tuple[object, object]:
    """`__version__` and `__version_tuple__` of vllm/_version.py; None for one not in it."""
    values = []
    for line in _VERSION_LINE, _TUPLE_LINE:
        match = line.search(source)
        values.append(_literal(match[0].rpartition(" = ")[2]) if match else None)
    return values[0], values[1]


def version_tuple(version: Version) -> tuple[int | str, ...]:
    """The version as setuptools-scm writes it in `__version_tuple__`."""
    return *version.release, *((version.local,) if version.local else ())


def with_version_file_version(source: str, version: Version) -> str:
    """vllm/_version.py with another version and every other line kept."""
    lines = (
        (_VERSION_LINE, "__version__ = version", str(version)),
        (_TUPLE_LINE, "__version_tuple__ = version_tuple", version_tuple(version)),
    )
    for pattern, names, value in lines:
        parts = pattern.split(source)
        if len(parts) != 2:
            raise Fault(
                f"{VERSION_FILE} sets {names.split()[0]} {len(parts) - 1} times, not once;"
                " use a wheel of vLLM's build"
            )
        source = f"{parts[0]}{names} = {value!r}{parts[1]}"
    return source


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
