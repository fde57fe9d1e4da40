"""What a verification has asked of the server in all: requests, tokens, refusals, and how many at once."""

import msgspec

from fitserve.verify.answer import Answer


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """Every request for tokens, numbers or classes of one verification; pages such as ``/metrics`` are not counted.

    Attributes:
        sent: requests in all.
        accepted: answered whole.
        refused: answered by a status of 400 and more.
        failed: the others: no answer in time, a broken one, or none.
        error_types: the refused and failed ones by kind.
        prompt_tokens: tokens in, as the server counted them.
        output_tokens: tokens out.
        most_in_flight: requests in flight at one moment.
    """

    sent: int = 0
    accepted: int = 0
    refused: int = 0
    failed: int = 0
    error_types: dict[str, int] = {}
    prompt_tokens: int = 0
    output_tokens: int = 0
    most_in_flight: int = 0


class Counter:
    """Counts while a verification runs."""

    def __init__(self) -> None:
        self._answers = {"accepted": 0, "refused": 0, "failed": 0}
        self._error_types: dict[str, int] = {}
        self._tokens = [0, 0]
        self._in_flight = self._most_in_flight = 0

    def begin(self) -> None:
        """A request is sent."""
        self._in_flight += 1
        self._most_in_flight = max(self._most_in_flight, self._in_flight)

    def end(self, answer: Answer | None) -> None:
        """A request is over; None where it was given up."""
        self._in_flight -= 1
        if answer is None or answer.error_type is not None:
            kind = "timeout" if answer is None else str(answer.error_type)
            self._error_types[kind] = self._error_types.get(kind, 0) + 1
        if answer is None:
            self._answers["failed"] += 1
            return
        refused = answer.status is not None and answer.status >= 400
        self._answers["accepted" if answer.ok else "refused" if refused else "failed"] += 1
        self._tokens[0] += answer.prompt_tokens or 0
        self._tokens[1] += answer.output_tokens or 0

    def tally(self) -> Tally:
        """The sums so far."""
        return Tally(
            sent=sum(self._answers.values()),
            **self._answers,
            error_types=dict(sorted(self._error_types.items())),
            prompt_tokens=self._tokens[0],
            output_tokens=self._tokens[1],
            most_in_flight=self._most_in_flight,
        )
