"""Names of runs (o: clock and randomness)."""

import datetime as dt
import os


def new_run_id() -> str:
    """A short name that sorts by time: ``20261201-152233-7f3a9c``, in UTC.

    The six hexadecimal digits keep apart the runs that start in one second, on one machine or on many.
    """
    return f"{dt.datetime.now(dt.UTC):%Y%m%d-%H%M%S}-{os.urandom(3).hex()}"
