"""``fitserve fix --dry-run``: what would be started, and changed."""

import os
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fitserve.cli.options import Output
from fitserve.errors import EXIT_OK

if TYPE_CHECKING:
    from fitserve.fix.options import Options
    from fitserve.trial.outcome import Change


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What ``fix`` would do; the JSON of ``fix --dry-run --json``.

    Attributes:
        command: what would be started first.
        change: what that changes of the command as it was given, for the goal; None where nothing.
        forecast: what the memory model expects of the launch and of the changes, or why it expects nothing.
    """

    schema: int = 1
    kind: Literal["fix-plan"] = "fix-plan"
    command: str
    change: "Change | None"
    url: str
    max_trials: int
    start_seconds: float
    budget_seconds: float | None
    forecast: Any


def show_dry_run(launch: tuple[str, ...], options: "Options", output: Output) -> int:
    """Say what would be done, and do nothing."""
    from fitserve.facts.command import shown
    from fitserve.facts.find_launch import find_launch
    from fitserve.fix.forecast import forecast
    from fitserve.fix.goal import towards_goal
    from fitserve.fix.site import checked_launch
    from fitserve.trial.address import read_address
    from fitserve.trial.choice import change_of, changed
    from fitserve.trial.progress import Quiet

    ready = checked_launch(find_launch(launch, os.environ), os.environ, Quiet())
    advice = towards_goal(ready, options.bounds)
    change = None if advice is None else change_of(ready, advice)
    ready = ready if advice is None else changed(ready, advice)
    plan = DryRun(
        command=shown(ready.argv, ready.env),
        change=change,
        url=read_address(ready, os.environ).url or "",
        max_trials=options.max_trials,
        start_seconds=options.limits.start_seconds,
        budget_seconds=options.budget_seconds,
        forecast=forecast(ready, options),
    )
    output.emit(plan, lambda: _plan_text(plan))
    return EXIT_OK


def _plan_text(plan: DryRun) -> str:
    from fitserve.units import Unknown

    limit = "" if plan.budget_seconds is None else f", within {plan.budget_seconds / 60:g} minutes"
    lines = [
        "nothing was started; this is what would be done:",
        "",
        f"    {plan.command}",
        "",
        f"until {plan.url} answers and every check passes",
        f"at most {plan.max_trials} starts of at most {plan.start_seconds:g} s each{limit}, each with one change",
        "",
    ]
    if plan.change is not None:
        lines.append(_trial_line(1, plan.change))
    found = plan.forecast
    if isinstance(found, Unknown):
        return "\n".join([*lines, f"what will happen is not foreseen: {found.unknown}"])
    why = f": {found.cause}: {found.message}" if found.cause else ""
    assumed = " (assumed; --vllm-version tells it)" if found.version_is_assumed else ""
    lines.append(f"expected with vLLM {found.vllm_version}{assumed}: {found.verdict.replace('-', ' ')}{why}")
    lines += [_trial_line(n, change) for n, change in enumerate(found.changes, 2)]
    if found.cause and not found.changes:
        lines.append("no change is expected to do" + (f"; {found.reachable}" if found.reachable else ""))
    return "\n".join(lines)


def _trial_line(n: int, change: "Change") -> str:
    before = "" if change.value_from is None else f" {change.value_from} ->"
    return f"trial {n}: {change.flag}{before} {change.to} ({change.cost}): {change.why}"
