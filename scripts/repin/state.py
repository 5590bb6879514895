"""What a move of the pin keeps in build/repin, so that it can stop, go on, and be undone."""

import json
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from scripts import paths
from scripts.errors import Fault
from scripts.fetch import Source
from scripts.release import Release
from scripts.series import HERE as SERIES
from scripts.series import Folders, files_below


@dataclass(frozen=True)
class Project:
    """The files that a move changes, and where it works."""

    pin: Path = paths.PIN
    folders: Folders = SERIES
    checkout: Path = paths.CHECKOUT
    cache: Path = paths.CACHE
    work: Path = paths.BUILD / "repin"

    @property
    def state(self) -> Path:
        """The file that is there while a move is under way."""
        return self.work / "state.json"

    @property
    def before(self) -> Folders:
        """The series as it was."""
        return _folders(self.work / "before")

    @property
    def after(self) -> Folders:
        """The series as it is going to be."""
        return _folders(self.work / "after")


HERE = Project()


def _folders(root: Path) -> Folders:
    return Folders(root / "patches", root / "vllm_overlay", root / "csrc")


@dataclass(frozen=True)
class State:
    """How far a move is."""

    version: str
    commit: str
    sha256: str
    date: int
    origin: str
    # Commits of build/vllm: the old vLLM and series, and the new vLLM.
    old_base: str
    old_tip: str
    base: str
    # Commits of the series on the old vLLM, and how many of them `tip` has.
    patches: tuple[str, ...]
    done: int
    tip: str
    # Places in vLLM of the files that the series had.
    had: tuple[str, ...]
    # Whether the next patch is with the user, and whether the files here are being written.
    stopped: bool = False
    finishing: bool = False

    def release(self, project: Project) -> Release:
        """The vLLM that the pin moves to."""
        source = Source(project.cache / f"vllm-{self.version}.tar.gz", self.origin)
        return Release(self.version, self.commit, self.sha256, self.date, source)


def load(project: Project) -> State | None:
    """The state of the move that is under way, or None."""
    if not project.state.exists():
        return None
    try:
        facts = json.loads(project.state.read_text(encoding="utf-8"))
        return State(**facts | {name: tuple(facts[name]) for name in ("patches", "had")})
    except (ValueError, TypeError, KeyError):
        raise Fault(
            f"{project.state} is broken; remove {project.work} and run `make checkout`"
        ) from None


def save(project: Project, state: State, **changes: object) -> State:
    """Writes the state, with changes, whole or not at all; returns it."""
    state = replace(state, **changes)  # type: ignore[arg-type]
    project.work.mkdir(parents=True, exist_ok=True)
    copy = project.state.with_suffix(".new")
    copy.write_text(json.dumps(asdict(state), indent=1) + "\n", encoding="utf-8")
    copy.replace(project.state)
    return state


def keep_before(project: Project) -> None:
    """Copies the pin and the series, to be put back by `restore`."""
    target = project.work / "before"
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    shutil.copy2(project.pin, target / "pin.toml")
    for source, copy in _pairs(project.folders, project.before):
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))


def restore(project: Project) -> None:
    """Puts back what `keep_before` copied, and takes away what was written since."""
    _put(project.work / "before" / "pin.toml", project.pin)
    after = dict(_pairs(project.folders, project.after))
    for target, kept in _pairs(project.folders, project.before):
        for path in files_below(after[target]):
            if not (kept / path).exists():
                (target / path).unlink(missing_ok=True)
        for path in files_below(kept):
            _put(kept / path, target / path)


def _put(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    copy = target.with_name(f".{target.name}.new")
    shutil.copy2(source, copy)
    copy.replace(target)


def _pairs(first: Folders, second: Folders) -> list[tuple[Path, Path]]:
    return [
        (first.patches, second.patches),
        (first.overlay, second.overlay),
        (first.csrc, second.csrc),
    ]
