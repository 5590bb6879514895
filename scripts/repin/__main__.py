"""Moves the pin to another release of vLLM: `make repin VLLM=0.34.0`.

    python -m scripts.repin VERSION | --abort

The series is merged patch by patch onto the new vLLM, on a branch of build/vllm. Where all of it
merges, pin.toml and the series' files are written. Where a patch does not, the run stops with
build/vllm at the conflict, and pin.toml and the series as they were: the same command goes on once
it is put right there, `make repin ABORT=1` goes back.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from scripts import errors, lock, paths
from scripts.apply import commit_series, commits
from scripts.checkout import APPLIED, BRANCH, MOVING, checkout, place_base, shown
from scripts.errors import Fault
from scripts.git import Git, GitError
from scripts.pin import Pin, load_pin
from scripts.refresh import export, write
from scripts.release import Release, find_release, sdist_given
from scripts.repin.state import HERE, Project, State, keep_before, load, restore, save
from scripts.series import load_series
from scripts.transplant import Fit, pick
from scripts.transplant import State as FitState

# The new vLLM's tree, until the tag `base` is it.
NEW_BASE = "refs/repin/base"


def repin(version: str, sdist: Path | None = None, project: Project = HERE) -> list[str]:
    """Moves the pin, or goes on with a move that stopped; returns the files written, as shown.

    `sdist` is the version's source distribution, where it is not to come from cache or PyPI.
    Raises Fault where a patch conflicts: build/vllm is then at the conflict.
    """
    with lock.held("repin"):
        state = load(project)
        if state is None:
            state = _begin(version, sdist, project)
        elif state.version != version:
            raise Fault(
                f"a move to {state.version} is under way; go on with `make repin "
                f"VLLM={state.version}`, or end it with `make repin ABORT=1`"
            )
        git = Git(project.checkout, state.date)
        with lock.held("checkout"):
            if not state.finishing:
                state = _go_on(git, project, _resolved(git, project, state))
            written = _finish(git, project, state)
        checkout(load_pin(project.pin), project.checkout, project.folders, project.cache)
        return written


def abort(project: Project = HERE) -> None:
    """Ends a move: pin.toml, the series and build/vllm are what they were before it."""
    with lock.held("repin"):
        state = load(project)
        if state is None:
            raise Fault("no move of the pin is under way; there is nothing to end")
        with lock.held("checkout"):
            git = Git(project.checkout, state.date)
            if state.finishing:
                restore(project)
            _place_refs(git, state.old_base, state.old_tip)
            git.bytes("reset", "--quiet", "--hard", state.old_tip)
            _forget(git, project)
        checkout(load_pin(project.pin), project.checkout, project.folders, project.cache)
        print(f"repin: back at vLLM {load_pin(project.pin).version}", flush=True)


def _begin(version: str, sdist: Path | None, project: Project) -> State:
    pin = load_pin(project.pin)
    if version == pin.version:
        raise Fault(f"the pin is vLLM {version} already")
    release = find_release(version, sdist, project.cache)
    release.pin_text(project.pin.read_text(encoding="utf-8"))  # It can be written, later.
    tip = checkout(pin, project.checkout, project.folders, project.cache)
    with lock.held("checkout"):
        git = Git(project.checkout, pin.source_date_epoch)
        old_base = git.text("rev-parse", "base^{commit}")
        series = load_series(project.folders)
        patches = tuple(commit for _, commit in commits(git, old_base, series))
        base = _bring_base(git, release, pin, project)
        state = State(
            version=release.version,
            commit=release.commit,
            sha256=release.sha256,
            date=release.date,
            origin=release.source.origin,
            old_base=old_base,
            old_tip=tip,
            base=base,
            patches=patches,
            done=0,
            tip=base,
            had=tuple(sorted(place for patch in series.patches for place in patch.claimed)),
        )
        return save(project, state)


def _bring_base(git: Git, release: Release, pin: Pin, project: Project) -> str:
    """Commits the new vLLM's tree in build/vllm, apart from everything there; returns its id."""
    with tempfile.TemporaryDirectory(dir=project.checkout.parent, prefix="repin-") as folder:
        tree = Path(folder) / "vllm"
        place_base(release.pin(pin), release.source, tree)
        git.bytes("fetch", "--quiet", "--no-tags", str(tree), f"+refs/tags/base:{NEW_BASE}")
    return git.text("rev-parse", f"{NEW_BASE}^{{commit}}")


def _resolved(git: Git, project: Project, state: State) -> State:
    """The state with build/vllm at its tip; after a stop, with what was committed since."""
    if not state.stopped:
        git.bytes("update-ref", MOVING, state.tip)
        git.bytes("symbolic-ref", "HEAD", MOVING)
        git.bytes("reset", "--quiet", "--hard", state.tip)
        return state
    folder = shown(project.checkout)
    head = git.text("rev-parse", "HEAD")
    if git.text("rev-parse", "--symbolic-full-name", "HEAD") != MOVING:
        raise Fault(f"{folder} is on another branch; go back with `git -C {folder} switch repin`")
    changed = git.lines("status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal")
    if changed or (project.checkout / ".git" / "CHERRY_PICK_HEAD").exists():
        where = f" ({changed[0][3:]})" if changed else ""
        raise Fault(
            f"the conflict in {folder} is not committed yet{where}; `git add` what is put right, "
            f"{_how_to_go_on(state)}"
        )
    try:
        git.bytes("merge-base", "--is-ancestor", state.tip, head)
    except GitError:
        raise Fault(
            f"{folder}: the commits of the patches before the conflict are gone; `make repin "
            "ABORT=1`, and begin again"
        ) from None
    return save(project, state, done=state.done + 1, tip=head, stopped=False)


def _go_on(git: Git, project: Project, state: State) -> State:
    """Merges the patches that are left, or stops at one."""
    git_of_old = Git(project.checkout, load_pin(project.pin).source_date_epoch)
    placed = list(commits(git_of_old, state.old_base, load_series(project.folders)))
    if tuple(commit for _, commit in placed) != state.patches:
        raise Fault(
            "patches/, vllm_overlay/ or csrc/ have changed since the move began; put them back, "
            "or `make repin ABORT=1` and begin again"
        )
    for number, (patch, commit) in enumerate(placed[state.done :], state.done + 1):
        fit = pick(git, patch, commit)
        if fit.state is FitState.CONFLICT:
            _stop(git, project, state, fit, commit)
        dropped = ", dropped" if fit.state is FitState.THERE else ""
        print(f"repin: {patch.name}: {fit.state.value}{dropped}", flush=True)
        state = save(project, state, done=number, tip=git.text("rev-parse", "HEAD"))
    return state


def _stop(git: Git, project: Project, state: State, fit: Fit, commit: str) -> None:
    """Leaves build/vllm as git leaves a cherry-pick that conflicts, and ends the run."""
    try:
        git.bytes("-c", "merge.conflictStyle=diff3", "cherry-pick", commit)
    except GitError:
        save(project, state, stopped=True)
    for conflict in fit.conflicts:
        print(f"repin: {fit.patch.name}: {conflict.path}: {conflict.reason}", flush=True)
        for line in conflict.changed:
            print(f"    {line}", flush=True)
    files = ", ".join(sorted({conflict.path for conflict in fit.conflicts}))
    raise Fault(
        f"{fit.patch.name} conflicts with vLLM {state.version} in {files}: put it right in "
        f"{shown(project.checkout)}, `git add` it there, {_how_to_go_on(state)}"
    )


def _how_to_go_on(state: State) -> str:
    return (
        "`git cherry-pick --continue` (`--skip` drops the patch), then `make repin "
        f"VLLM={state.version}` goes on; `make repin ABORT=1` goes back"
    )


def _finish(git: Git, project: Project, state: State) -> list[str]:
    """Writes the series and the pin, and makes the moved branch the series' own.

    Every step can be done again: a run that was interrupted here is finished by the next.
    """
    if not state.finishing:
        with tempfile.TemporaryDirectory(dir=project.work, prefix="export-") as folder:
            export(git, state.base, state.tip, Path(folder))
            if project.work.joinpath("after").exists():
                shutil.rmtree(project.work / "after")
            shutil.copytree(folder, project.work / "after")
        keep_before(project)
        state = save(project, state, finishing=True)
    tip = commit_series(git, state.base, load_series(project.after))
    written = write(project.after, project.folders, set(state.had))
    text = (project.work / "before" / "pin.toml").read_text(encoding="utf-8")
    copy = project.pin.with_name(f".{project.pin.name}.new")
    copy.write_text(state.release(project).pin_text(text), encoding="utf-8")
    copy.replace(project.pin)
    _place_refs(git, state.base, tip)
    _forget(git, project)
    return [*written, project.pin.name]


def _place_refs(git: Git, base: str, tip: str) -> None:
    """Makes `base` and `tip` the vLLM and the series of build/vllm, all refs or none."""
    refs = {"refs/tags/base": base, BRANCH: tip, APPLIED: tip}
    git.text("update-ref", "--stdin", stdin="".join(f"update {r} {c}\n" for r, c in refs.items()))
    git.bytes("symbolic-ref", "HEAD", BRANCH)


def _forget(git: Git, project: Project) -> None:
    for ref in (MOVING, NEW_BASE):
        if git.commit_id(ref):
            git.bytes("update-ref", "-d", ref)
    project.state.unlink()
    shutil.rmtree(project.work)


def main() -> None:
    """Moves the pin, or goes back."""
    parser = argparse.ArgumentParser(prog="repin")
    parser.add_argument("version", nargs="?", default="")
    parser.add_argument("--abort", action="store_true")
    arguments = parser.parse_args()
    if arguments.abort:
        if arguments.version:
            raise Fault("give VLLM=<version> to move the pin or ABORT=1 to go back, not both")
        abort()
        return
    if not arguments.version:
        raise Fault("to which vLLM? give VLLM=<version>, like VLLM=0.32.0")
    for path in repin(arguments.version, sdist_given()):
        print(f"repin: {path}")
    version = load_pin(paths.PIN).version
    print(f"repin: the pin is vLLM {version}; next: `make lint test`, and commit")


if __name__ == "__main__":
    errors.run("repin", main)
