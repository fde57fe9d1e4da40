"""The three questions that a user has, and their answers."""

from typing import Literal

import msgspec

from fitserve.verify.session import Session
from fitserve.verify.steps import UNPROVEN
from fitserve.verify.verification import Check

Answered = Literal["yes", "no", "not asked"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One of the three questions that a user has, and its answer."""

    question: str
    answer: Answered
    because: str


def verdicts(session: Session) -> list[Verdict]:
    """The three answers: one full-length request; N at the goal's length; N at full length."""
    number = session.options.goal_concurrency or 1
    questions = (
        ("one request of full length", "boundary-exact"),
        (f"{number} at once of the goal's length", "goal-length"),
        (f"{number} at once of full length", "full-length"),
    )
    return [
        Verdict(question=question, answer=_answered(check), because=check.actual if check else "")
        for question, name in questions
        for check in [session.found(name)]
    ]


def _answered(check: Check | None) -> Answered:
    if check is None or (check.passed is None and check.error_type in {None, *UNPROVEN}):
        return "not asked"
    return "yes" if check.passed else "no"
