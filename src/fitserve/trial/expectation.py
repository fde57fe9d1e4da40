"""How long a start will take, from earlier starts of the same model with settings that take as long."""

from collections.abc import Iterable
from itertools import pairwise
from statistics import median

import msgspec

from fitserve.errors import FitserveError
from fitserve.facts.command import Launch, read_command
from fitserve.trial.outcome import Trial

_SHAPE = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "quantization",
    "dtype",
    "load_format",
    "enforce_eager",
    "compilation_config",
    "optimization_level",
)
"""What decides how long a start takes, beside the model: how much each device reads, and what is compiled and captured."""


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """What earlier starts took.

    Attributes:
        seconds: from the launch to the first answer, the median; None where none has answered.
        phases: each phase that was passed, the median.
    """

    seconds: float | None = None
    phases: dict[str, float] = {}

    def words(self, stage: str, seconds: float, in_stage_seconds: float) -> str:
        """``expected 1:40, now 0:35``; of the stage where no start has come further; empty where nothing is known.

        Args:
            stage: the phase that the start is in.
            seconds: since the launch.
            in_stage_seconds: since the phase began.
        """
        if self.seconds is not None:
            return f"expected {clock(self.seconds)}, now {clock(seconds)}"
        if stage in self.phases:
            return f"{stage}: expected {clock(self.phases[stage])}, now {clock(in_stage_seconds)}"
        return ""


UNKNOWN = Expectation()
"""Where no start like it was seen."""


def expectation(launch: Launch, earlier: Iterable[Trial]) -> Expectation:
    """What starts like this one took.

    Args:
        launch: the command.
        earlier: trials of any command; those of another model or shape are passed over.
    """
    similar = [trial for trial in earlier if _is_similar(launch, trial)]
    served = [trial.seconds for trial in similar if trial.outcome == "served"]
    durations: dict[str, list[float]] = {}
    for trial in similar:
        for phase, following in pairwise(trial.phases):
            durations.setdefault(phase.stage, []).append(following.start_seconds - phase.start_seconds)
    return Expectation(
        seconds=median(served) if served else None,
        phases={stage: median(several) for stage, several in durations.items()},
    )


def clock(seconds: float) -> str:
    """A duration as a clock shows it: ``1:40``, ``1:02:03``."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _is_similar(launch: Launch, trial: Trial) -> bool:
    if trial.outcome == "stopped":
        return False
    try:
        other = read_command(trial.argv)
    except FitserveError:
        return False
    same_model = launch.model is not None and launch.model == other.model
    return same_model and all(launch.value(name) == other.value(name) for name in _SHAPE)
