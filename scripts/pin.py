"""pin.toml as a value."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts import paths
from scripts.errors import Fault


@dataclass(frozen=True)
class Pin:
    """The pinned vLLM, the toolchain, and the series' own number."""

    version: str
    commit: str
    sha256: str
    source_date_epoch: int
    number: int
    architectures: tuple[str, ...]
    # Group (build, test, lint) -> package -> exact version.
    groups: Mapping[str, Mapping[str, str]]

    @property
    def sdist_name(self) -> str:
        """File name of the source distribution."""
        return f"vllm-{self.version}.tar.gz"

    @property
    def tools(self) -> dict[str, str]:
        """Package -> exact version, of every group."""
        return {name: version for group in self.groups.values() for name, version in group.items()}


def load_pin(path: Path = paths.PIN) -> Pin:
    """Reads the pin; raises Fault where the file or one of its facts is missing."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        return Pin(
            version=table["vllm"]["version"],
            commit=table["vllm"]["commit"],
            sha256=table["vllm"]["sha256"],
            source_date_epoch=table["vllm"]["source_date_epoch"],
            number=table["series"]["number"],
            architectures=tuple(table["op"]["architectures"]),
            groups=table["tools"],
        )
    except OSError as error:
        raise Fault(
            f"{path}: {error.strerror}; restore it with `git checkout {path.name}`"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise Fault(f"{path}: not TOML: {error}") from None
    except KeyError as error:
        raise Fault(f"{path}: no {error.args[0]!r}") from None
