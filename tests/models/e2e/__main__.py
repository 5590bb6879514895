"""Runs the models and leaves build/e2e/report.md: `make e2e`.

    python -m e2e [MODEL ...]

A result is kept in build/e2e until the tree, the op, the tests or the model change, so that an
interrupted run goes on where it was.
"""

import argparse
import datetime
import pickle
import platform
import sys
import time

import keeping
import pytest
from one_model import one_model

from e2e.catalogue import MODELS
from e2e.report import Row, markdown
from scripts import errors, paths
from scripts.errors import Fault
from scripts.git import Git

_FOLDER = paths.BUILD / "e2e"


def main() -> None:
    """Runs what has no result yet, one line a model; ends with status 1 if a row does not hold."""
    parser = argparse.ArgumentParser(prog="e2e", description="Whole models, fusion on and off.")
    parser.add_argument("models", nargs="*", help="names of the catalogue; all if none is given")
    names = parser.parse_args().models or list(MODELS)
    if unknown := [name for name in names if name not in MODELS]:
        raise Fault(f"no model {', '.join(unknown)}; there are {', '.join(MODELS)}")
    commit = Git(paths.CHECKOUT, epoch=0).text("rev-parse", "--short=12", "HEAD")
    rows = []
    for number, name in enumerate(names, 1):
        row, seconds = _row(name, _state(commit, name))
        rows.append(row)
        what = "; ".join(row.failures) or "holds"
        print(f"e2e: {number}/{len(names)} {name}: {what} ({seconds:.0f} s)", flush=True)
        keeping.write(_FOLDER / "report.md", markdown(rows, _about(commit)).encode())
    print(f"e2e: {_FOLDER.relative_to(paths.ROOT)}/report.md")
    if any(row.failures for row in rows):
        sys.exit(1)


def _row(name: str, state: str) -> tuple[Row, float]:
    """The model's row, kept or run now, and the seconds that the run took."""
    kept = _FOLDER / f"{name}.{state}.pickle"
    begun = time.monotonic()
    if kept.exists():
        return Row(MODELS[name], pickle.loads(kept.read_bytes())), 0.0
    try:
        results = one_model(name)
    except (RuntimeError, pytest.fail.Exception) as failed:
        text = str(failed)
        keeping.write(_FOLDER / f"{name}.log", text.encode())
        return Row(
            MODELS[name], None, f"did not run; see build/e2e/{name}.log"
        ), time.monotonic() - begun
    keeping.write(kept, pickle.dumps(results))
    return Row(MODELS[name], results), time.monotonic() - begun


def _state(commit: str, name: str) -> str:
    # Of the catalogue the model alone; what a report makes of results is worked out anew.
    anew = ("__main__.py", "catalogue.py", "report.py", "verdict.py")
    files = [file for file in keeping.TESTS.glob("models/e2e/*.py") if file.name not in anew]
    files += [keeping.TESTS / "models/one_model.py"]
    files += keeping.TESTS.glob("integration/simulation/**/*.py")
    return keeping.state(f"{commit} {MODELS[name]}", files)


def _about(commit: str) -> str:
    import torch
    import triton

    today = datetime.datetime.now(datetime.UTC).date()
    return (
        f"{today}, by `make e2e`: {platform.machine()}, Python {platform.python_version()}, torch "
        f"{torch.__version__}, triton {triton.__version__} (interpreted), patched tree {commit}."
    )


if __name__ == "__main__":
    errors.run("e2e", main)
