"""What was proven at the API: the values, without the doing. Their JSON is the contract of ``verify --json``."""

from typing import Any, Literal

import msgspec


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One question to a running server.

    Attributes:
        name: a stable id, such as ``boundary-exact``.
        passed: True, False, or None where it could not be asked (then ``actual`` says why).
        expected: what should be seen.
        actual: what was seen.
        seconds: how long it took.
        prompt_tokens: tokens in, as the server counted them.
        output_tokens: tokens out, as the server counted them.
        concurrency: requests in flight at once.
        error_type: the kind of error seen, such as ``timeout`` or ``http-404``; None if none.
    """

    name: str
    passed: bool | None
    expected: str
    actual: str
    seconds: float = 0.0
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    concurrency: int = 1
    error_type: str | None = None


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """Every check of one server, and what it said of itself."""

    schema: int = 1
    kind: Literal["verification"] = "verification"
    url: str
    model: str | None = None
    served_names: list[str] = []
    max_model_len: int | None = None
    server_version: str | None = None
    checks: list[Check] = []
    numbers: dict[str, Any] = {}

    @property
    def passed(self) -> bool:
        """True where at least one check passed and none failed."""
        return any(check.passed for check in self.checks) and not any(
            check.passed is False for check in self.checks
        )

    def unproven(self, goal_context: int | None) -> str | None:
        """Why a goal is not proven though no check has failed, in a few words; None where it is, or where there is none."""
        goal = next((check for check in self.checks if check.name == "goal-length"), None)
        if goal_context is None or not self.passed or (goal is not None and goal.passed):
            return None
        return f"the goal is not proven: {'it was not asked' if goal is None else goal.actual}"
