"""What stops an execution."""


class Unknown(Exception):
    """An instruction, an operand or a mode that the emulator has no meaning for; names it."""


class Violation(Exception):
    """The code does what a GPU must not be made to do; says which instruction, and what.

    access: number of the access among those of the instruction, where one access is at fault.
    """

    def __init__(self, message: str, access: int | None = None) -> None:
        super().__init__(message)
        self.access = access
