"""Chooses the one change to try next, and makes it in the command."""

import shlex
from typing import Any, Literal, get_args

import msgspec

from fitserve.diagnose.finding import Advice, Cost, Diagnosis
from fitserve.facts.command import Launch, is_variable, variable
from fitserve.facts.command_edit import with_option, with_variable, with_words
from fitserve.trial.outcome import Change, Purpose

COSTS = get_args(Cost)
"""Cheapest first."""

RETRY = "retry"
"""The one action that the loop can carry out: the same command again, once."""

REMOVALS = ("remove-flag", "drop-quantization-flag")
"""The actions that take the option which they name out of the command."""

_DEVICE_FLAGS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")

Try = tuple[str, str]
"""A flag and a value that a trial had, as JSON."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a change may not do.

    Attributes:
        goal_context: tokens that one request must be able to have; None where any context will do.
        goal_concurrency: requests that must run at once; None where any number will do.
        first: ``latency`` or ``throughput`` where one of them comes first.
        allow_output: True where answers may change.
        devices: how many devices are visible; None where that is not known.
    """

    goal_context: int | None = None
    goal_concurrency: int | None = None
    first: Literal["latency", "throughput"] | None = None
    allow_output: bool = False
    devices: int | None = None


class Skipped(msgspec.Struct, frozen=True):
    """Advice that is not taken, and why."""

    advice: Advice
    reason: str


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What is tried next.

    Attributes:
        advice: the change; None where nothing is left to try.
        skipped: what was passed over.
        reachable: what would be reached at best where nothing is left to try, in words; empty where that is not known.
    """

    advice: Advice | None
    skipped: list[Skipped]
    reachable: str = ""


def choose(diagnosis: Diagnosis, launch: Launch, tried: set[Try], bounds: Bounds) -> Choice:
    """The cheapest advice that can be carried out; the diagnosis' own order decides between equals.

    Args:
        diagnosis: why the last trial failed.
        launch: its command.
        tried: every flag and value that a trial had.
        bounds: what a change may not do.
    """
    skipped: list[Skipped] = []
    for advice in sorted(diagnosis.advice, key=lambda advice: COSTS.index(advice.cost)):
        reason = objection(advice, launch, tried, bounds)
        if reason is None:
            return Choice(advice=advice, skipped=skipped)
        skipped.append(Skipped(advice, reason))
    return Choice(advice=None, skipped=skipped)


def changed(launch: Launch, advice: Advice) -> Launch:
    """The command with the one change in it; the same one where the advice is to start it again."""
    if advice.action == RETRY:
        return launch
    flag = _flag(advice)
    if is_variable(flag):
        return with_variable(launch, flag, _variable_text(advice.to))
    head = flag.partition(".")[0]
    given = launch.option(head) is not None or launch.configured(head) is not None
    if advice.option and advice.to is not None and not given:
        # The advice knows how the option is spelled in this release.
        return with_words(launch, shlex.split(advice.option))
    return with_option(launch, flag, advice.to)


def change_of(launch: Launch, advice: Advice, *, purpose: Purpose = "fix") -> Change | None:
    """The change in words and numbers, with the value that the command had; None where it is started again as it is."""
    if advice.action == RETRY:
        return None
    before = _current(launch, _flag(advice))
    return Change(
        flag=_flag(advice),
        value_from=before if before is not None else advice.value_from,
        to=advice.to,
        why=advice.why,
        cost=advice.cost,
        purpose=purpose,
        predicted=advice.predicted,
    )


def tries(launch: Launch, advice: Advice) -> set[Try]:
    """What must not be tried after this advice: the same again, or the way back."""
    if advice.action == RETRY:
        return {_key(RETRY, None)}
    flag = _flag(advice)
    return {_key(flag, advice.to), _key(flag, _current(launch, flag))}


def _key(flag: str, to: Any) -> Try:
    return flag, msgspec.json.encode(to).decode()


def objection(advice: Advice, launch: Launch, tried: set[Try], bounds: Bounds) -> str | None:
    """Why an advice cannot be taken; None where it can.

    Args:
        advice: the change.
        launch: the command.
        tried: every flag and value that a trial had.
        bounds: what a change may not do.
    """
    flag = advice.flag
    if advice.action == RETRY:
        return "it was tried" if _key(RETRY, None) in tried else None
    if flag is None or advice.action not in (None, *REMOVALS):
        return "it is for you to do, outside the command"
    if advice.cost == "output" and not bounds.allow_output:
        return "answers may change; allow it with --allow output"
    if _current(launch, flag) == advice.to:
        return "the command has it already"
    if _key(flag, advice.to) in tried:
        return "it was tried"
    return _missing_devices(flag, advice, launch, bounds) or _below_goal(flag, advice, bounds)


def _missing_devices(flag: str, advice: Advice, launch: Launch, bounds: Bounds) -> str | None:
    if flag not in _DEVICE_FLAGS:
        return None
    if bounds.devices is None:
        is_fewer = advice.direction == "down"
        return None if is_fewer else "how many devices are visible is not known"
    needed = 1
    for name in _DEVICE_FLAGS:
        value = advice.to if name == flag else launch.value(name)
        needed *= value if isinstance(value, int) else 1
    return f"it needs {needed} devices, and {bounds.devices} are visible" if needed > bounds.devices else None


def _below_goal(flag: str, advice: Advice, bounds: Bounds) -> str | None:
    """What would make the goal impossible; -1 is vLLM's own choice, which the checks at the end judge."""
    goal = {"max_model_len": bounds.goal_context, "max_num_seqs": bounds.goal_concurrency}.get(flag)
    if goal is None or advice.to == -1 or not isinstance(advice.to, int | float) or advice.to >= goal:
        return None
    return f"it is below the goal of {goal:,}"


def _flag(advice: Advice) -> str:
    return advice.flag or ""


def _current(launch: Launch, flag: str) -> Any:
    if not is_variable(flag):
        return launch.value(flag)
    text = variable(launch, flag, {})
    return int(text) if text is not None and text.isdecimal() else text


def _variable_text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return "" if value is None else str(value)
