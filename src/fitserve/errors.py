"""The errors that a command ends with, each knowing its exit code.

    FitserveError
    |-- UsageError        2   the command line is wrong
    |-- InputError        3   the input cannot be used
    `-- MachineError      4   this machine cannot do it

A failing vLLM is no error of ours: it is a finding, and a value.
"""


class FitserveError(Exception):
    """What went wrong, where, and one hint.

    Args:
        what: one lower-case sentence with the offending value.
        where: the file, line, URL or flag it concerns; empty if there is none.
        hint: one thing to do; empty if there is none.
    """

    exit_code = 70

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        lines = [f"error: {self.what}"]
        if self.where:
            lines.append(f"  --> {self.where}")
        if self.hint:
            lines.append(f"help: {self.hint}")
        return "\n".join(lines)


class UsageError(FitserveError):
    """The command line is wrong."""

    exit_code = 2


class InputError(FitserveError):
    """The input is missing, unreadable, or of a kind that is not supported."""

    exit_code = 3


class MachineError(FitserveError):
    """This machine cannot do it: no vLLM, no device, a port taken, a store locked."""

    exit_code = 4


EXIT_OK = 0
EXIT_NO = 1
EXIT_DEFECT = 70
EXIT_INTERRUPTED = 130
