"""How a change is typed: as an option, an argument of ``LLM(...)``, or a variable; and only if that vLLM knows it."""

from fitserve.diagnose.finding import Advice, Cost, Direction, NotAdvised, Scalar
from fitserve.diagnose.situation import Situation, scalar
from fitserve.memory.history import has_flag

_SWITCHES = (
    "enforce_eager",
    "enable_chunked_prefill",
    "skip_mm_profiling",
    "trust_remote_code",
    "language_model_only",
)
_REQUEST = ("max_tokens",)


def change(  # noqa: PLR0917 -- a change has these six parts in every rule
    situation: Situation,
    flag: str,
    to: Scalar,
    direction: Direction,
    cost: Cost,
    why: str,
    *,
    predicted: dict[str, object] | None = None,
) -> list[Advice]:
    """One change of a flag or a variable, or nothing where that vLLM does not know it."""
    if not has_flag(flag, situation.version):
        return []
    return [
        Advice(
            flag=flag,
            value_from=scalar(situation.case.value(flag)),
            to=to,
            direction=direction,
            cost=cost,
            why=why,
            option=spell(situation, flag, to),
            predicted=dict(predicted or {}),
        )
    ]


def act(action: str, why: str, cost: Cost = "free", option: str | None = None) -> Advice:
    """One action."""
    return Advice(action=action, cost=cost, why=why, option=option)


def drop(action: str, flag: str, why: str, option: str | None = None) -> Advice:
    """One option taken out of the command."""
    return Advice(action=action, flag=flag, direction="set", why=why, option=option)


def avoid(flag: str, direction: Direction | None, why: str) -> NotAdvised:
    """A change of a flag that does not help."""
    return NotAdvised(flag=flag, direction=direction, why=why)


def spell(situation: Situation, flag: str, to: Scalar) -> str:
    """The change as it is typed there.

    >>> # --max-model-len 40960 | max_model_len=40960 | VLLM_USE_V1=0
    """
    if flag.isupper():
        return f"{flag}={to}"
    if flag in _REQUEST:
        return f'"{flag}": {to}'
    if situation.case.launch == "python":
        return f"{flag}={to!r}"
    name = "--" + flag.replace("_", "-")
    if flag in _SWITCHES and isinstance(to, bool):
        if to:
            return name
        return f"--no-{flag.replace('_', '-')}"
    return f"{name} {_quoted(to)}"


def _quoted(to: Scalar) -> str:
    text = str(to)
    return f"'{text}'" if any(character in text for character in ' {}"') else text
