"""What a verification knows while it runs: the server's own words, and the answers so far."""

from collections.abc import Callable

import msgspec

from fitserve.verify.client import Client
from fitserve.verify.metrics import Gauges, parse_metrics
from fitserve.verify.options import Options
from fitserve.verify.tally import Counter
from fitserve.verify.verification import Check

METRICS_DEADLINE_SECONDS = 5.0

NO_MODEL = "no model name is known; give one with --model NAME if this is an API of that kind"
"""Why nothing can be asked of a server that lists no model."""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What the server said of itself.

    Attributes:
        names: the served model names.
        model: the name that the checks' requests carry; None where none is known.
        max_model_len: the longest request in tokens, prompt and output together; None where it does not say.
        version: vLLM's version; None for another server.
        software: the server's software as far as its answers show it; empty if they do not.
    """

    names: list[str] = []
    model: str | None = None
    max_model_len: int | None = None
    version: str | None = None
    software: str = ""


class Session:
    """One verification in progress.

    Args:
        client: the connection.
        options: what is asked.
        on_check: called with each check as it is answered.
        on_progress: called with a few words while something lasts.
    """

    def __init__(
        self,
        client: Client,
        options: Options,
        on_check: Callable[[Check], None],
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.client = client
        self.options = options
        self.served = Served()
        self.checks: list[Check] = []
        self.counter = Counter()
        self.tell = on_progress
        self._on_check = on_check

    def record(self, check: Check) -> Check:
        """Keep a check's answer and show it."""
        self.checks.append(check)
        self._on_check(check)
        return check

    def skip(self, name: str, expected: str, why: str) -> Check:
        """Keep a check that could not be asked."""
        return self.record(unasked(name, expected, why))

    def found(self, name: str) -> Check | None:
        """An earlier check by its name."""
        return next((check for check in self.checks if check.name == name), None)

    @property
    def no_model(self) -> str:
        """Why nothing can be asked of a server that lists no model."""
        models = self.found("models")
        if models is not None and models.error_type in ("http-401", "http-403"):
            return "the server wants an API key before it names a model"
        return NO_MODEL

    async def gauges(self) -> Gauges | None:
        """The scheduler's state now; None where the server does not publish it."""
        answer = await self.client.get(
            "/metrics", min(METRICS_DEADLINE_SECONDS, self.options.deadline_seconds)
        )
        return parse_metrics(answer.text) if answer.ok else None


def unasked(name: str, expected: str, why: str) -> Check:
    """A check that could not be asked."""
    return Check(name=name, passed=None, expected=expected, actual=f"cannot be asked: {why}")
