"""How a script fails: one line that says what is wrong and what to do next."""

import sys
from collections.abc import Callable
from typing import NoReturn


class Fault(Exception):
    """Something a user can put right; its text is the whole message, in one line."""


def run(program: str, main: Callable[[], None]) -> NoReturn:
    """Runs `main` and ends the process: 0, or 1 after `<program>: <message>` for a Fault."""
    try:
        main()
    except Fault as fault:
        sys.stdout.flush()
        print(f"{program}: {fault}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.stdout.flush()
        print(f"{program}: interrupted; run it again to go on", file=sys.stderr)
        sys.exit(130)
    sys.exit(0)
