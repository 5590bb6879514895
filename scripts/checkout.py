"""Makes build/vllm: the pinned vLLM as a git repository, with the series on top.

    python -m scripts.checkout

The tag `base` is upstream's tree; on it lies one commit per patch, with the files that the patch
claims. A tree that is up to date is left alone. Work in it that `make refresh` has not written
back is never touched: the run is refused instead.
"""

import os
import shutil
from pathlib import Path

from scripts import errors, lock, paths
from scripts.apply import commits
from scripts.errors import Fault
from scripts.fetch import Source, find_source, git_origin, sdist_origin, unpack
from scripts.git import Git
from scripts.pin import Pin, load_pin
from scripts.series import HERE, Folders, load_series

BRANCH = "refs/heads/series"
# The branch on which `make repin` merges the series onto another vLLM.
MOVING = "refs/heads/repin"
# The commit that was last placed here: what lies beyond it is a developer's work.
APPLIED = "refs/series/applied"
# The commit that a run is about to place: there only during that, or when it was interrupted.
PENDING = "refs/series/pending"


def checkout(
    pin: Pin,
    folder: Path = paths.CHECKOUT,
    folders: Folders = HERE,
    cache: Path = paths.CACHE,
) -> str:
    """Brings `folder` to the pinned vLLM with the series; returns the id of its last commit.

    Raises Fault where a patch does not apply, the source is not the pinned one, or the folder has
    work that would be lost.
    """
    with lock.held("checkout"):
        series = load_series(folders)
        for path in series.unclaimed:
            print(f"checkout: {path}: no patch claims it, so it is left out", flush=True)
        git = Git(folder, pin.source_date_epoch)
        if folder.exists():
            recover(git)
            refuse_unwritten_work(git)
        source = _source_of_new_base(pin, git, cache)
        if source is not None:
            place_base(pin, source, folder)
        base = git.text("rev-parse", "base^{commit}")
        placed = list(commits(git, base, series))
        tip = placed[-1][1] if placed else base
        state = "up to date"
        if git.commit_id("HEAD") != tip:
            state = "done"
            for patch, _ in placed:
                print(f"checkout: {patch.name}", flush=True)
            move(git, tip)
        write_version(pin, folder)
        count = f"{len(placed)} patch{'' if len(placed) == 1 else 'es'}"
        print(f"checkout: {shown(folder)}: vLLM {pin.version} with {count}: {state}", flush=True)
        return tip


def shown(folder: Path) -> str:
    """A folder as messages name it."""
    return str(folder.relative_to(paths.ROOT) if folder.is_relative_to(paths.ROOT) else folder)


def recover(git: Git) -> None:
    """Brings an interrupted `move` to its end; Fault for a folder that no run of this made."""
    folder = shown(git.folder)
    if not (git.folder / ".git").is_dir() or git.commit_id(APPLIED) is None:
        raise Fault(f"{folder} is not a checkout that this made; move it away and run this again")
    pending, head = git.commit_id(PENDING), git.commit_id("HEAD")
    if pending is None:
        return
    if head not in (pending, git.commit_id(APPLIED)):
        # Commits were made on top of the interrupted state: they are for `refuse_unwritten_work`.
        git.bytes("update-ref", "-d", PENDING)
        return
    # A killed git leaves its lock behind, which would stop every later one.
    (git.folder / ".git" / "index.lock").unlink(missing_ok=True)
    foreign = _differing(git, "HEAD") & _differing(git, pending)
    if foreign:
        raise Fault(
            f"{folder}: an interrupted run is to be finished, but {min(foreign)} has changes of "
            f"yours; save it, and discard them with `git -C {folder} checkout {min(foreign)}`"
        )
    move(git, pending)


def _differing(git: Git, commit: str) -> set[str]:
    """Paths of the working tree that are not as in a commit."""
    return set(git.lines("diff", "--name-only", "-z", "--no-renames", commit))


def refuse_unwritten_work(git: Git) -> None:
    """Fault where the folder has commits or changes that are not in the series' files."""
    folder = shown(git.folder)
    refuse_uncommitted_work(git)
    if git.commit_id("HEAD") != git.commit_id(APPLIED):
        raise Fault(
            f"{folder} has commits that are not in patches/: write them with `make refresh`, or "
            f"discard them with `git -C {folder} reset --hard {APPLIED}`"
        )


def refuse_uncommitted_work(git: Git) -> None:
    """Fault where the folder is on another branch, or has changes that are not committed."""
    folder = shown(git.folder)
    branch = git.text("rev-parse", "--symbolic-full-name", "HEAD")
    if branch == MOVING:
        raise Fault(
            f"{folder} is being moved to another vLLM; go on with `make repin`, or go back with "
            "`make repin ABORT=1`"
        )
    if branch != BRANCH:
        name = branch.removeprefix("refs/heads/")
        raise Fault(f"{folder} is on {name}; go back with `git -C {folder} switch series`")
    changed = git.lines("status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal")
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise Fault(
            f"{folder} has changes that are not committed ({changed[0][3:]}{more}): commit them "
            f"and run `make refresh`, or discard them with `git -C {folder} reset --hard` and "
            f"`git -C {folder} clean -fd`"
        )


def move(git: Git, tip: str) -> None:
    """Takes the branch and the working tree to `tip`, in steps that `recover` can finish."""
    git.bytes("update-ref", PENDING, tip)
    git.bytes("reset", "--quiet", "--hard", tip)
    git.bytes("update-ref", APPLIED, tip)
    git.bytes("update-ref", "-d", PENDING)


def _source_of_new_base(pin: Pin, git: Git, cache: Path) -> Source | None:
    """Where a new base is to come from, or None where the one at hand is the pinned one.

    A source distribution at hand is verified in either case.
    """
    file, repository = os.environ.get("VLLM_SDIST"), os.environ.get("VLLM_GIT")
    source = None
    if file or (not repository and (cache / pin.sdist_name).exists()):
        source = find_source(pin, cache)
    if git.folder.exists():
        date, message = git.text("log", "-1", "--format=%ct%n%B", "base").split("\n", 1)
        origin = message.strip().rsplit("Source: ", 1)[-1]
        from_sdist = origin == sdist_origin(pin.sha256) and not repository
        from_git = origin.startswith(git_origin(pin.commit)) and not file
        if (from_sdist or from_git) and int(date) == pin.source_date_epoch:
            return None
    return source or find_source(pin, cache)


def place_base(pin: Pin, source: Source, folder: Path) -> None:
    """Makes `folder` a repository with upstream's tree as its one commit, whole or not at all."""
    partial, old = (folder.with_name(f"{folder.name}.{end}") for end in ("partial", "old"))
    for left in (partial, old):
        if left.exists():
            shutil.rmtree(left)
    print(f"checkout: unpacking {source.archive.name}", flush=True)
    partial.mkdir(parents=True)
    git = Git(partial, pin.source_date_epoch)
    git.bytes("init", "--quiet", "--template=", f"--initial-branch={Path(BRANCH).name}")
    unpack(source.archive, partial)
    # vLLM's .gitignore names folders that its own tree has (lib/, build/): -f takes them all.
    git.bytes("add", "--all", "--force", ".")
    message = f"vLLM {pin.version}\n\nSource: {source.origin}\n"
    git.text("commit", "--quiet", "--no-verify", "--file=-", stdin=message)
    git.bytes("tag", "base")
    git.bytes("update-ref", APPLIED, "base^{commit}")
    if folder.exists():
        folder.rename(old)
    partial.rename(folder)
    if old.exists():
        shutil.rmtree(old)


def write_version(pin: Pin, folder: Path) -> None:
    """Gives the tree the version file that vLLM's build would write, and that git ignores."""
    numbers = ", ".join(part if part.isdigit() else repr(part) for part in pin.version.split("."))
    text = (
        f'__version__ = version = "{pin.version}"\n'
        f"__version_tuple__ = version_tuple = ({numbers})\n"
        f'__commit_id__ = commit_id = "g{pin.commit}"\n'
    )
    file = folder / "vllm" / "_version.py"
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")


def main() -> None:
    """Makes the checkout that the pin and the series call for."""
    checkout(load_pin())


if __name__ == "__main__":
    errors.run("checkout", main)
