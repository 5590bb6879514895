"""The commits of the branch `stage`: the series in upstream's form, then what is upstream's alone.

upstream/ is a series of its own on top of patches/: its mails change files that vLLM has (docs),
its files/ hold what comes in whole (tests, benchmarks), claimed by `Overlay:` lines as usual.
"""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts import paths
from scripts.apply import commits
from scripts.errors import Fault
from scripts.git import Git
from scripts.series import Folders, Patch, Series, load_series, mode_of
from scripts.stage.messages import Person, upstream_message
from scripts.stage.strip import kept_lines, strip

# What is added to the series for upstream; there is no csrc/ of that kind.
UPSTREAM = Folders(
    paths.ROOT / "upstream" / "patches",
    paths.ROOT / "upstream" / "files",
    paths.ROOT / "upstream" / "csrc",
)


@dataclass(frozen=True)
class Staged:
    """One commit of the branch, and the patch that it comes from."""

    patch: Patch
    commit: str

    @property
    def name(self) -> str:
        """The patch by its path here: patches/ and upstream/patches/ number theirs alike."""
        return _shown(self.patch.path)


def _shown(path: Path) -> str:
    return str(path.relative_to(paths.ROOT) if path.is_relative_to(paths.ROOT) else path)


@dataclass(frozen=True)
class Home:
    """Where a staged file lies here, and the numbers of its lines that are staged."""

    path: str
    lines: tuple[int, ...]


def stage(
    git: Git, base: str, series: Series, upstream: Folders, person: Person
) -> tuple[list[Staged], dict[str, Home]]:
    """Commits everything on `base`; returns the commits, and place in vLLM -> home of our files.

    Fault where a patch does not apply, or a file of the series that upstream/ has no patch for is
    left over.
    """
    extra = load_series(upstream)
    if extra.unclaimed:
        raise Fault(f"{upstream.overlay}: no mail claims {extra.unclaimed[0]}; add `Overlay:`")
    staged: list[Staged] = []
    homes: dict[str, Home] = {}
    tip = base
    for patch, commit in _both(git, base, series, extra):
        homes |= {place: home_of_file(file) for place, file in patch.claimed.items()}
        tip = _commit(git, tip, commit, _files(series, extra), person)
        staged.append(Staged(patch, tip))
    return staged, homes


def _both(git: Git, base: str, series: Series, extra: Series) -> Iterator[tuple[Patch, str]]:
    """The commits of the series, and on the last of them those of upstream/."""
    tip = base
    for patch, commit in commits(git, base, series):
        tip = commit
        yield patch, commit
    yield from commits(git, tip, extra)


def _files(*parts: Series) -> dict[str, Path]:
    return {p: f for part in parts for patch in part.patches for p, f in patch.claimed.items()}


def home_of_file(file: Path) -> Home:
    """A file's home, named from the repository's root where it lies there."""
    return Home(_shown(file), tuple(kept_lines(file.read_bytes(), _shown(file))))


def _commit(git: Git, tip: str, commit: str, files: Mapping[str, Path], person: Person) -> str:
    """A commit's tree, stripped, on `tip`, by the person, with upstream's message."""
    with tempfile.TemporaryDirectory(prefix="stage-") as folder:
        staged = git.with_index(Path(folder) / "index")
        staged.bytes("read-tree", commit)
        present = set(staged.lines("ls-files", "-z", "--", *files)) if files else set()
        entries = []
        for place in sorted(present):
            content = strip(files[place].read_bytes(), str(files[place]))
            blob = git.bytes("hash-object", "-w", "--stdin", "--no-filters", stdin=content)
            entries.append(f"{mode_of(files[place])} {blob.decode().strip()}\t{place}\0")
        staged.text("update-index", "-z", "--index-info", stdin="".join(entries))
        tree = staged.text("write-tree")
    date = git.text("log", "-1", "--format=%ad", "--date=raw", commit)
    who = {
        f"GIT_{role}_{fact}": value
        for role in ("AUTHOR", "COMMITTER")
        for fact, value in (("NAME", person.name), ("EMAIL", person.email), ("DATE", date))
    }
    message = upstream_message(git.text("log", "-1", "--format=%B", commit), person)
    return git.text("commit-tree", tree, "-p", tip, stdin=message, env=who)


def sign_off_faults(git: Git, staged: list[Staged], person: Person) -> list[str]:
    """The commits that vLLM's check of the sign-off would refuse: it must be the author's."""
    found = []
    for each in staged:
        author = git.text("log", "-1", "--format=Signed-off-by: %an <%ae>", each.commit)
        message = git.text("log", "-1", "--format=%B", each.commit)
        if author != person.sign_off or message.splitlines()[-1] != author:
            found.append(f"{each.name}: the staged commit does not end in {person.sign_off}")
    return found
