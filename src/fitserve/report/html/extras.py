"""What a page shows beside the record, because it is worked out and not kept."""

from typing import Literal

import msgspec

from fitserve.plan.values import FrontierPoint


class Frontier(msgspec.Struct, frozen=True, kw_only=True):
    """Context against concurrency for the run's model.

    Attributes:
        points: by settings; empty where they are not known.
        chosen: tokens of one request, and how many fit at once, with the settings that the run ended with.
        reason: why there are no points.
    """

    schema: int = 1
    kind: Literal["frontier"] = "frontier"
    points: list[FrontierPoint] = []
    chosen: tuple[int, float] | None = None
    reason: str = "it was not asked for"


class Emitted(msgspec.Struct, frozen=True, kw_only=True):
    """A file that starts what serves.

    Attributes:
        name: of the file.
        text: of the file.
    """

    name: str
    text: str


class Extras(msgspec.Struct, frozen=True, kw_only=True):
    """Everything beside the record.

    Attributes:
        frontier: of the run's model.
        emitted: files that start what serves.
        not_emitted: why there are none.
        redactions: what was hidden, in words; empty where nothing was looked for.
    """

    frontier: Frontier = Frontier()
    emitted: list[Emitted] = []
    not_emitted: str = ""
    redactions: str = ""
