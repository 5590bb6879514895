"""Tries the series on another vLLM: `make compat VLLM=0.32.0`, or VLLM=<a git checkout>.

    python -m scripts.compat VERSION | FOLDER

Each patch is merged onto it, one after another, in a copy of this repository below build/compat;
the integration tests that can run are run there. Prints a table, leaves it in
build/compat/vllm-<version>.md, and fails where a patch conflicts or a test fails.
"""

import datetime
import sys
from pathlib import Path

from scripts import errors, lock, op, paths
from scripts.checkout import checkout
from scripts.compat import tests
from scripts.compat.fit import Side, fit_series
from scripts.compat.report import Report, as_markdown
from scripts.errors import Fault
from scripts.pin import load_pin
from scripts.release import VERSION, Release, find_release, from_repository, sdist_given
from scripts.scratch import copy_to
from scripts.series import HERE, Folders

FOLDER = paths.BUILD / "compat"


def find_target(named: str, sdist: Path | None) -> Release:
    """The vLLM that the command line names, by version or by the folder of a git checkout."""
    if VERSION.fullmatch(named):
        return find_release(named, sdist)
    if Path(named).is_dir():
        return from_repository(Path(named), load_pin())
    raise Fault(f"{named!r} is no version and no folder; give VLLM=0.32.0 or VLLM=<git checkout>")


def compat(release: Release) -> Report:
    """Tries the series of this repository on a release."""
    pin = load_pin()
    tip = checkout(pin)
    root = FOLDER / f"vllm-{release.version}"
    copy_to(root)
    text = (root / "pin.toml").read_text(encoding="utf-8")
    (root / "pin.toml").write_text(release.pin_text(text), encoding="utf-8")
    (root / "build").mkdir()
    copied = Folders(root / "patches", root / "vllm_overlay", root / "csrc")
    other = Side(release.pin(pin), root / "build" / "vllm", copied)
    with lock.held("checkout"):
        fits = fit_series(Side(pin, paths.CHECKOUT, HERE), release, other)
    files, left_out = tests.chosen(fits, root)
    outcome = tests.Outcome(0, {}, {})
    if files and (obstacle := tests.find_obstacle(root, op.build())):
        outcome = tests.Outcome(0, {}, {}, obstacle)
    elif files:
        print(f"compat: running {len(files)} test files; {root}/tests.log has the log", flush=True)
        outcome = tests.run(files, root, op.build())
    today = datetime.datetime.now(datetime.UTC).date()
    return Report(release.version, pin.version, tip, today, fits, outcome, left_out)


def main() -> None:
    """Prints the table, leaves it in build/compat, and fails where the series does not fit."""
    named = sys.argv[1] if len(sys.argv) == 2 else ""
    if not named:
        raise Fault("on which vLLM? give VLLM=<version>, like VLLM=0.32.0, or VLLM=<git checkout>")
    with lock.held("compat"):
        report = compat(find_target(named, sdist_given()))
        text = as_markdown(report)
        print(text)
        file = FOLDER / f"vllm-{report.target}.md"
        copy = file.with_suffix(".new")
        copy.write_text(text, encoding="utf-8")
        copy.replace(file)
    print(f"compat: {file.relative_to(paths.ROOT)}")
    if not report.is_good:
        raise Fault(f"the series does not fit vLLM {report.target} as it is, see the table")


if __name__ == "__main__":
    errors.run("compat", main)
