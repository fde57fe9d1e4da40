"""What a verification is asked to prove, and how far it may go."""

from typing import Literal

import msgspec

from fitserve.errors import UsageError

Profile = Literal["full", "quick"]
"""``quick`` asks less of each kind: it stands at the end of a trial, where the user waits."""

DEFAULT_RAMP_CONCURRENCY = 8
"""Where the ramp ends when neither a goal nor ``max_num_seqs`` is known: enough to see requests share the engine."""

QUICK_RAMP_CONCURRENCY = 4


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The questions' sizes and limits.

    Attributes:
        deadline_seconds: the longest that any one request may take.
        model: the name that the user's requests carry; None takes the first served name.
        api_key_env: the environment variable that holds the API key.
        ca_file: a PEM file with the certificate authority to trust.
        goal_context: tokens of one request, prompt and output together, that the user needs.
        goal_concurrency: how many such requests at once.
        input_tokens: prompt tokens of a ramp's request.
        output_tokens: output tokens of a ramp's request.
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
    max_num_seqs: int | None = None
    profile: Profile = "full"
    allow_public: bool = False

    def __post_init__(self) -> None:
        """Refuse sizes that ask for nothing.

        Raises:
            UsageError: a size or a deadline is not above zero.
        """
        for name in ("deadline_seconds", "goal_context", "goal_concurrency", "input_tokens", "output_tokens"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                option = "--" + name.removesuffix("_seconds").replace("_", "-")
                raise UsageError(f"{name} must be above 0, not {value}", where=option)

    @property
    def ramp_concurrency(self) -> int:
        """Where the ramp ends: the goal, else a small number; never above ``max_num_seqs``."""
        small = QUICK_RAMP_CONCURRENCY if self.profile == "quick" else DEFAULT_RAMP_CONCURRENCY
        end = self.goal_concurrency or small
        return min(end, self.max_num_seqs or end)

    @property
    def rounds(self) -> int:
        """How many requests each place of a ramp's step sends, one after the other."""
        return 1 if self.profile == "quick" else 2
