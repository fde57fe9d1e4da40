"""What one start of a server was: the values, without the doing."""

from typing import Any, Literal

import msgspec

from fitserve.diagnose.finding import Diagnosis, Scalar

State = Literal["served", "failed", "silent", "timed-out", "stopped"]
"""How a trial ended: it answered; it died; it said nothing for too long; it took too long; we were told to stop."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The one difference between a trial and the one before it.

    Attributes:
        flag: vLLM's name with underscores, or the environment variable.
        value_from: the value before; None where it was not given.
        to: the new value.
        why: the arithmetic in one sentence.
        cost: what it costs.
    """

    flag: str
    value_from: Scalar = msgspec.field(name="from", default=None)
    to: Scalar = None
    why: str = ""
    cost: str = "free"


class PhaseTime(msgspec.Struct, frozen=True, kw_only=True):
    """A phase of the start and when it began, in seconds after the launch."""

    stage: str
    start_seconds: float


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that the trial's own processes held.

    Attributes:
        peak_rss_bytes: the largest sum of resident memory over the process tree.
        peak_gpu_bytes: the same on the devices, by process; None without NVML.
        printed: what vLLM printed about its memory, by name (``kv_cache_tokens``, ``weights_gib``).
    """

    peak_rss_bytes: int = 0
    peak_gpu_bytes: int | None = None
    printed: dict[str, Any] = {}


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One start, from launch to end.

    Attributes:
        n: 1-based number within the run.
        argv: the command as it was started.
        env: the environment variables that differ from the user's.
        change: the one difference to the trial before; None for the first.
        outcome: how it ended.
        cause: the diagnosis' cause; None where it served.
        exit_code: the child's exit code; None where it was still running or died by a signal.
        signal: the signal that ended the child.
        seconds: from launch to the end of the start (ready, or dead).
        phases: when each phase began.
        memory: what it held.
        diagnosis: what its log says.
        log_path: where its output is kept.
        url: where it answers, while it runs.
    """

    n: int
    argv: list[str]
    env: dict[str, str] = {}
    change: Change | None = None
    outcome: State
    cause: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    seconds: float
    phases: list[PhaseTime] = []
    memory: Memory = Memory()
    diagnosis: Diagnosis | None = None
    log_path: str | None = None
    url: str | None = None
