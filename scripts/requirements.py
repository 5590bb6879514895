"""Prints which of the requirements on standard input this interpreter does not meet."""

import importlib.metadata
import sys

from packaging.requirements import Requirement


def unmet(text: str) -> list[str]:
    """The lines of a requirements file that do not hold here, without their comments."""
    lines = (line.split("#", 1)[0].strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("-") and not holds(line)]


def holds(line: str) -> bool:
    """Whether one requirement is met, or is for another platform."""
    requirement = Requirement(line)
    if requirement.marker is not None and not requirement.marker.evaluate():
        return True
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return requirement.specifier.contains(version, prereleases=True)


if __name__ == "__main__":
    print("\n".join(unmet(sys.stdin.read())), end="")
