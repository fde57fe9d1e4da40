"""What the loop would do, foreseen before anything is started (o: the model's files, the devices)."""

import os
from collections.abc import Mapping
from pathlib import PurePath

import msgspec

from fitserve.diagnose.finding import Diagnosis
from fitserve.errors import FitserveError
from fitserve.facts.command import Launch
from fitserve.facts.engine.find import find_engine
from fitserve.fix.next_change import next_change
from fitserve.fix.options import Options
from fitserve.fix.question import question
from fitserve.memory.history import NEWEST
from fitserve.plan.from_launch import image_release
from fitserve.plan.request import judge_request
from fitserve.plan.search import Level, cause_now, level, problem_now
from fitserve.trial.choice import Try, change_of, changed, tries
from fitserve.trial.devices import visible_devices
from fitserve.trial.outcome import Change
from fitserve.units import Unknown

_MOST_CHANGES = 4


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What is expected of a launch.

    Attributes:
        vllm_version: the release whose rules count.
        verdict: whether it starts.
        cause: what keeps it from starting, or from serving the goal; None where nothing does.
        message: the same in one sentence.
        changes: the changes that are expected to be made, in order.
        reachable: what could be reached at best where no change is expected to do; empty else.
        version_is_assumed: nobody told the release; the newest known stands for it.
    """

    vllm_version: str
    verdict: str
    cause: str | None
    message: str
    changes: list[Change]
    reachable: str = ""
    version_is_assumed: bool = False


def forecast(launch: Launch, options: Options, environ: Mapping[str, str] = os.environ) -> Forecast | Unknown:
    """Think the loop through by the memory model alone.

    Args:
        launch: the command as the first trial would start it.
        options: how far to go.
        environ: the user's environment.

    Returns:
        The forecast, or why there can be none.
    """
    known = options.vllm_version or image_release(launch) or _installed_release(launch)
    version = known or NEWEST
    bounds = msgspec.structs.replace(options.bounds, devices=visible_devices(environ))
    first: Forecast | None = None
    changes: list[Change] = []
    tried: set[Try] = set()
    while True:
        unread = _unread(version)
        asked = question(launch, unread, bounds=bounds, device=options.device, environ=environ)
        if isinstance(asked, Unknown):
            return asked
        try:
            judged = judge_request(asked.request)
        except FitserveError as error:
            return Unknown(error.what)
        if judged.unknown is not None:
            return judged.unknown
        serves = level(judged, asked.request) == Level.CONFIDENT
        problem = problem_now(judged)
        cause = None if serves else cause_now(judged)
        message = problem.message if problem else "" if serves else "it serves less than the goal"
        first = first or Forecast(
            vllm_version=version,
            verdict=judged.verdict,
            cause=cause,
            message=message,
            changes=[],
            version_is_assumed=known is None,
        )
        if cause is None or len(changes) == _MOST_CHANGES:
            return msgspec.structs.replace(first, changes=changes)
        failed = msgspec.structs.replace(unread, cause=cause, severity="error", message=message)
        choice = next_change(failed, launch, asked.request, tried, bounds)
        change = None if choice.advice is None else change_of(launch, choice.advice)
        if choice.advice is None or change is None:
            return msgspec.structs.replace(first, changes=changes, reachable=choice.reachable)
        tried |= tries(launch, choice.advice)
        launch, changes = changed(launch, choice.advice), [*changes, change]


def _installed_release(launch: Launch) -> str | None:
    """The release of the vLLM that the command runs on this machine; None where it runs elsewhere or does not tell."""
    if launch.container is not None:
        return None
    for word in launch.argv:
        name = PurePath(word).name
        if name == "vllm" or name.startswith("python"):
            try:
                return find_engine(word).version
            except FitserveError:
                return None
    return None


def _unread(version: str) -> Diagnosis:
    """The diagnosis of a start that has not been made."""
    return Diagnosis(
        stage="-",
        cause="healthy",
        line=None,
        severity="note",
        confidence="possible",
        message="not started",
        vllm_version=version,
    )
