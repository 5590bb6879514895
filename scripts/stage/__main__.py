"""Makes the upstream pull request: `make stage`.

    python -m scripts.stage

The series becomes the branch `stage` of build/vllm, on the pinned vLLM, in the form that vLLM's
reviewers expect: signed off, without what is this repository's alone, with the tests, benchmarks
and docs of upstream/. vLLM's own hooks, the compilers and the staged tests run over it. It leaves
build/stage/pr.md and the commits as mails, which apply to the pinned commit of vLLM's repository
with `git am`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scripts import errors, lock, op, paths
from scripts.checkout import checkout
from scripts.errors import Fault
from scripts.git import Git, GitError
from scripts.gpu_report import read_junit
from scripts.lint_vllm import HOOKS, version_faults
from scripts.pin import Pin, load_pin
from scripts.refresh import MAIL_FORMAT
from scripts.series import load_series
from scripts.stage import builds, hooks, ours, pull_request, tree
from scripts.stage.commits import UPSTREAM, Home, Staged, sign_off_faults, stage
from scripts.stage.fields import all_fields
from scripts.stage.messages import Person, configured_person
from scripts.stage.syntax import python_faults

BRANCH = "refs/heads/stage"
# The commit that was last staged: what lies beyond it on the branch is a person's work.
MADE = "refs/series/staged"
OUTPUT = paths.BUILD / "stage"
TESTS = "tests/upstream/test_staged.py"


def main() -> None:
    """Makes the branch, checks it, and writes the mails and the text of the pull request."""
    pin, person = load_pin(), configured_person()
    checkout(pin)
    with lock.held("stage"):
        git = Git(paths.CHECKOUT, pin.source_date_epoch)
        _refuse_others_work(git)
        base = git.text("rev-parse", "base^{commit}")
        staged, homes = stage(git, base, load_series(), UPSTREAM, person)
        for each in staged:
            _say(f"{each.name}: {git.text('log', '-1', '--format=%s', each.commit)}")
        files = git.lines("diff", "--name-only", "-z", "--diff-filter=d", base, staged[-1].commit)
        results = _check(git, pin, person, base, staged, homes, files)
        tests = _test(tree.FOLDER)
        _place_branch(git, staged[-1].commit)
        fields = all_fields(git, pin, base, staged, files, results, tests)
        left = _write(git, base, staged, fields)
    for what in left:
        _say(f"left for a person, marked in pr.md: {what}")
    count = len(staged)
    _say(f"branch stage of build/vllm: {count} commits; build/stage: pr.md and {count} mails")


def _refuse_others_work(git: Git) -> None:
    """Fault where the branch has commits that no staging made."""
    there = git.commit_id(BRANCH)
    if there is not None and there != git.commit_id(MADE):
        raise Fault(
            "build/vllm's branch stage has commits of yours; keep them with `git -C build/vllm "
            "branch -m stage mine`, and take over what is to stay into patches/ or upstream/"
        )


def _place_branch(git: Git, commit: str) -> None:
    git.text("update-ref", "--stdin", stdin=f"update {BRANCH} {commit}\nupdate {MADE} {commit}\n")


def _check(
    git: Git,
    pin: Pin,
    person: Person,
    base: str,
    staged: list[Staged],
    homes: dict[str, Home],
    files: Sequence[str],
) -> list[hooks.Result]:
    """Runs every check; prints the faults, named where one edits them, and fails where any are."""
    faults = python_faults(git, base, staged) + ours.faults(git, base, staged)
    faults += sign_off_faults(git, staged, person)
    place = tree.place(git, staged[-1].commit)
    faults += version_faults(pin, (place.folder / HOOKS).read_text(encoding="utf-8"))
    results = hooks.run_all(place.folder, files, lambda hook: _say(f"hook {hook}"))
    faults += [f"{line} [{result.id}]" for result in results for line in result.faults]
    place.bytes("reset", "--quiet", "--hard")  # A hook may have put its fault right.
    faults += builds.faults(git, base, staged, _say)
    tree.place(git, staged[-1].commit)
    for fault in faults:
        print(tree.at_home(fault, homes), flush=True)
    if faults:
        raise Fault(f"{len(faults)} faults, see above; the branch is as it was")
    return results


def _test(folder: Path) -> dict[str, object]:
    """Runs the staged tests in the staged tree; their counts. Fault where one fails."""
    _say("running the staged tests on a simulated gfx1151")
    with tempfile.TemporaryDirectory(prefix="stage-") as name:
        junit = Path(name) / "junit.xml"
        env = os.environ | {
            "RDNA35_STAGED_TREE": str(folder),
            "RDNA35_STAGED_JUNIT": str(junit),
            "RDNA35_TEST_LIBRARY": str(op.build()),
        }
        command = [sys.executable, "-m", "pytest", "-q", TESTS]
        done = subprocess.run(command, cwd=paths.ROOT, env=env, capture_output=True, text=True)
        if done.returncode != 0 or not junit.exists():
            print(done.stdout, flush=True)
            raise Fault("the staged tests do not pass, see above; the branch is as it was")
        return read_junit(junit)


def _write(git: Git, base: str, staged: list[Staged], fields: dict[str, str]) -> list[str]:
    """Writes build/stage, whole or not at all; returns what is left for a person."""
    text, left = pull_request.fill(pull_request.TEMPLATE.read_text(encoding="utf-8"), fields)
    try:
        wanted = git.text("show", f"{base}:{pull_request.UPSTREAM_TEMPLATE}")
    except GitError:
        raise Fault(f"vLLM has no {pull_request.UPSTREAM_TEMPLATE} any more") from None
    if missing := pull_request.lacking(text, wanted):
        raise Fault(f"{pull_request.TEMPLATE}: vLLM's template has {missing[0]!r}; add it")
    partial = OUTPUT.with_name(f"{OUTPUT.name}.partial")
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    (partial / "pr.md").write_text(text, encoding="utf-8")
    git.bytes(
        "format-patch",
        *MAIL_FORMAT,
        f"--output-directory={partial}",
        f"{base}..{staged[-1].commit}",
    )
    if OUTPUT.exists():
        shutil.rmtree(OUTPUT)
    partial.rename(OUTPUT)
    return left


def _say(text: str) -> None:
    print(f"stage: {text}", flush=True)


if __name__ == "__main__":
    errors.run("stage", main)
