"""What the end of a start says where its log names no cause: a signal, an exit code, a limit of time."""

import signal

import msgspec

from fitserve.diagnose.finding import Advice, Diagnosis, Evidence
from fitserve.trial.launch import Exit
from fitserve.trial.outcome import State

_STOPPED_BY = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def explained(
    diagnosis: Diagnosis, *, state: State, ended: Exit | None, phase: str, last_line: str, seconds: float
) -> Diagnosis:
    """The diagnosis with the cause that the end gives; a cause that the log names stays.

    Args:
        diagnosis: what the log says.
        state: how the start ended.
        ended: how the program ended; None where it was ended by us.
        phase: the stage that the start had reached.
        last_line: the last line with words in it.
        seconds: how long the start took, or said nothing.
    """
    if diagnosis.failed:
        return diagnosis
    evidence = [Evidence(0, last_line)] if last_line else []
    if state in ("silent", "timed-out"):
        return _stopped_by_us(diagnosis, evidence, state, phase, seconds)
    number = _signal(ended)
    if number == signal.SIGKILL:
        return _killed(diagnosis, evidence, phase)
    if number in _STOPPED_BY:
        return _of(
            diagnosis,
            evidence,
            cause="interrupted",
            severity="note",
            message=f"the start was stopped from outside by {signal.Signals(number).name} in the stage {phase}",
        )
    how = _how(ended)
    return _of(
        diagnosis,
        evidence,
        cause="unrecognised-error",
        stage="unknown",
        confidence="possible",
        message=f"the program {how} in the stage {phase}, and its log names no cause",
    )


def _stopped_by_us(
    diagnosis: Diagnosis, evidence: list[Evidence], state: State, phase: str, seconds: float
) -> Diagnosis:
    limit = "--silence" if state == "silent" else "--start-timeout"
    what = "said nothing for" if state == "silent" else "was not ready after"
    why = f"a start that is slow and not stuck needs a higher {limit}"
    return _of(
        diagnosis,
        evidence,
        cause="interrupted",
        message=f"the start {what} {seconds:.0f} s, in the stage {phase}, and was stopped",
        advice=[Advice(action="longer-time-limit", why=why)],
    )


def _killed(diagnosis: Diagnosis, evidence: list[Evidence], phase: str) -> Diagnosis:
    why = "the kernel kills the largest process where host memory, or a container's limit, is used up"
    return _of(
        diagnosis,
        evidence,
        cause="host-memory-exhausted",
        confidence="likely",
        message=f"the program was killed (SIGKILL) in the stage {phase} without an error of its own",
        advice=[Advice(action="raise-memory-limit", why=why), Advice(action="more-host-memory", why=why)],
    )


def _of(diagnosis: Diagnosis, evidence: list[Evidence], **found: object) -> Diagnosis:
    defaults: dict[str, object] = {"stage": "environment", "severity": "error", "confidence": "certain"}
    return msgspec.structs.replace(diagnosis, evidence=evidence, **{**defaults, **found})


def _signal(ended: Exit | None) -> int | None:
    """The signal that ended the program, or a program below it that a shell or a container reports."""
    if ended is None or ended.signal is not None:
        return ended.signal if ended else None
    number = (ended.code or 0) - 128
    return number if number in [*_STOPPED_BY, signal.SIGKILL] else None


def _how(ended: Exit | None) -> str:
    if ended is None:
        return "did not end"
    if ended.signal is not None:
        return f"crashed ({signal.Signals(ended.signal).name})"
    return f"ended with exit code {ended.code}"
