"""Looks at the classes and leaves build/fuses/table.md: `make fuses`.

    python -m what_fuses [MODULE:CLASS ...]

What was found is kept in build/fuses until the tree, the op or these files change, so that an
interrupted run goes on where it was; of one class until its configuration changes.
"""

import argparse
import datetime
import pickle
import platform

import keeping
from small_models import classes, digests, look_at

from scripts import errors, paths
from scripts.errors import Fault
from scripts.git import Git
from what_fuses.expected import expectation
from what_fuses.found import Found
from what_fuses.table import Row, faults, markdown

_FOLDER = paths.BUILD / "fuses"


def main() -> None:
    """Runs what has no result yet; ends with status 1 if a class is not as expected."""
    parser = argparse.ArgumentParser(prog="fuses", description="What fuses, class by class.")
    parser.add_argument("names", nargs="*", help="classes as module:class; all if none is given")
    names, every = parser.parse_args().names, classes()
    if unknown := [name for name in names if name not in every]:
        raise Fault(f"no class {', '.join(unknown)} in vLLM's registry")
    asked = {name: every[name] for name in names or every}
    commit = Git(paths.CHECKOUT, epoch=0).text("rev-parse", "--short=12", "HEAD")
    kept = _FOLDER / f"found.{_state(commit)}.pickle"
    results: dict[str, tuple[str, Found]] = pickle.loads(kept.read_bytes()) if kept.exists() else {}
    digest = digests(list(asked))
    missing = [name for name in asked if name not in results or results[name][0] != digest[name]]
    for number, (name, one) in enumerate(look_at(missing), 1):
        results[name] = digest[name], one
        keeping.write(kept, pickle.dumps(results))
        row = Row(name, asked[name], expectation(name), one)
        print(f"fuses: {number}/{len(missing)} {name}: {row.fault or 'as expected'}", flush=True)
    rows = [Row(name, asked[name], expectation(name), results[name][1]) for name in asked]
    keeping.write(_FOLDER / "table.md", markdown(rows, _about(commit)).encode())
    print(f"fuses: {_FOLDER.relative_to(paths.ROOT)}/table.md")
    if faulty := faults(rows):
        raise Fault(f"not as expected: {', '.join(faulty)}")


def _state(commit: str) -> str:
    models = keeping.TESTS / "models"
    # Configurations are in each result's digest; expectations and table are made of results.
    looking = [models / "what_fuses" / f"{name}.py" for name in ("absent", "found", "look")]
    files = [*looking, models / "small_models.py"]
    return keeping.state(commit, [*files, *keeping.TESTS.glob("integration/simulation/**/*.py")])


def _about(commit: str) -> str:
    import torch
    import transformers

    today = datetime.datetime.now(datetime.UTC).date()
    return (
        f"{today}, by `make fuses`: {platform.machine()}, Python {platform.python_version()}, "
        f"torch {torch.__version__}, transformers {transformers.__version__}, "
        f"patched tree {commit}."
    )


if __name__ == "__main__":
    errors.run("fuses", main)
