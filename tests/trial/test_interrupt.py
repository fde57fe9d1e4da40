"""Signals that come at a bad moment."""

import os
import signal

import pytest

from fitserve.trial.interrupt import stopping_like_ctrl_c, undisturbed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_waits_until_what_is_written_is_whole(number: signal.Signals) -> None:
    """It interrupts behind the block, and not within."""
    reached = []

    def write() -> None:
        with undisturbed():
            os.kill(os.getpid(), number)
            reached.append("written")
        reached.append("too late")

    with stopping_like_ctrl_c(), pytest.raises(KeyboardInterrupt):
        write()

    assert ["written"] == reached
