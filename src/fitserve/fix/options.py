"""How far the loop may go."""

from pathlib import Path
from typing import Any

import msgspec

from fitserve.fix.grow import Aim
from fitserve.trial.choice import Bounds
from fitserve.trial.vacancy import WAIT_SECONDS
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
        device: the devices' name, where no driver tells it; None to ask the driver and the log.
        vllm_version: the release, where nothing shows it before the start.
        grow: what to spend what is left on after the proof; None to leave it.
        grow_starts: the most starts for that.
        log_dir: where the trials' output is kept; None for a folder of its own, which goes when the journal has it.
        wait_seconds: how long another fitserve may keep a device.
        free_seconds: how long a device may take after a trial until its memory is free again.
    """

    max_trials: int = 5
    budget_seconds: float | None = None
    limits: Limits = Limits()
    bounds: Bounds = Bounds()
    request_deadline_seconds: float = 120.0
    model: str | None = None
    device: str | None = None
    vllm_version: str | None = None
    grow: Aim | None = None
    grow_starts: int = 1
    log_dir: Path | None = None
    wait_seconds: float = 0.0
    free_seconds: float = WAIT_SECONDS


def options_to_json(options: Options) -> dict[str, Any]:
    """The options as a record keeps them."""
    kept: dict[str, Any] = msgspec.to_builtins(options, enc_hook=str)
    return kept


def options_from_json(kept: dict[str, Any]) -> Options:
    """The options that a record has kept; a key that this version does not know is passed over."""
    return msgspec.convert(kept, Options, dec_hook=lambda kind, text: kind(text))
