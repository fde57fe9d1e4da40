"""What a verification is asked to prove, and how far it may go."""

import math
from typing import Literal

import msgspec

from fitserve.errors import UsageError

Profile = Literal["full", "quick"]
"""``quick`` asks less of each kind: it stands at the end of a trial, where the user waits."""

DEFAULT_RAMP_CONCURRENCY = 8
"""Where the ramp ends when neither a goal nor ``max_num_seqs`` is known: enough to see requests share the engine."""

QUICK_RAMP_CONCURRENCY = 4

MAX_IN_FLIGHT = 1024
"""No more are sent at once: a server that answers none of them must not be buried."""

_ABOVE_ZERO = (
    "deadline_seconds",
    "goal_context",
    "goal_concurrency",
    "input_tokens",
    "output_tokens",
    "max_num_seqs",
    "request_rate",
    "minutes",
)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The questions' sizes and limits.

    Attributes:
        deadline_seconds: the longest that any one request may take.
        model: the name that the user's requests carry; None takes the first served name.
        api_key_env: the environment variable that holds the API key.
        ca_file: a PEM file with the certificate authority to trust.
        goal_context: tokens of one request, prompt and output together, that the user needs.
        goal_concurrency: how many such requests at once.
        input_tokens: prompt tokens of a request under load.
        output_tokens: output tokens of a request under load.
        random_range_ratio: how far the sizes under load spread around these: from ``1 - ratio`` to ``1 + ratio`` of them.
        trace_file: recorded requests, a JSON object a line, whose sizes (and times, where they are) the load takes.
        request_rate: requests a second that arrive whether or not earlier ones are answered; None asks no such load.
        minutes: how long the load is kept up at the end; None keeps it up for no time.
        max_num_seqs: the server's own limit of running requests, where the caller knows it.
        profile: how much is asked.
        allow_public: the user has confirmed a target outside this machine and its private network.
    """

    deadline_seconds: float = 120.0
    model: str | None = None
    api_key_env: str | None = None
    ca_file: str | None = None
    goal_context: int | None = None
    goal_concurrency: int | None = None
    input_tokens: int = 128
    output_tokens: int = 32
    random_range_ratio: float = 0.0
    trace_file: str | None = None
    request_rate: float | None = None
    minutes: float | None = None
    max_num_seqs: int | None = None
    profile: Profile = "full"
    allow_public: bool = False

    def __post_init__(self) -> None:
        """Refuse sizes that ask for nothing, or for no end.

        Raises:
            UsageError: a size, a rate or a time is not above zero, or not finite; a ratio is not from 0 to below 1.
        """
        for name in _ABOVE_ZERO:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                option = "--" + name.removesuffix("_seconds").replace("_", "-")
                raise UsageError(f"{name} must be above 0, not {value}", where=option)
        if not 0 <= self.random_range_ratio < 1:
            raise UsageError(
                f"random_range_ratio must be from 0 to below 1, not {self.random_range_ratio}",
                where="--random-range-ratio",
            )

    @property
    def ramp_concurrency(self) -> int:
        """Where the ramp ends: the goal, else ``max_num_seqs``, else a small number; never above ``max_num_seqs`` or all bounds."""
        if self.profile == "quick":
            end = self.goal_concurrency or QUICK_RAMP_CONCURRENCY
        else:
            end = self.goal_concurrency or self.max_num_seqs or DEFAULT_RAMP_CONCURRENCY
        return min(end, self.max_num_seqs or end, MAX_IN_FLIGHT)

    @property
    def rounds(self) -> int:
        """How many requests each place of a ramp's step sends, one after the other."""
        return 1 if self.profile == "quick" else 2
