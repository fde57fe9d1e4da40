"""How far the loop may go."""

from pathlib import Path

import msgspec

from fitserve.trial.choice import Bounds
from fitserve.trial.watch import Limits


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How far the loop may go.

    Attributes:
        max_trials: the most starts.
        budget_seconds: the most time for the whole run; None for no limit.
        limits: how long one start may take.
        bounds: what a change may not do.
        request_deadline_seconds: for each request of the checks.
        model: the name that clients will send; None for whatever is served.
        log_dir: where the trials' output is kept; None for a folder of its own.
    """

    max_trials: int = 4
    budget_seconds: float | None = None
    limits: Limits = Limits()
    bounds: Bounds = Bounds()
    request_deadline_seconds: float = 120.0
    model: str | None = None
    log_dir: Path | None = None
