"""The settings of the user, checked for their kind."""

from typing import Any

from fitserve.errors import UsageError

_KIND_WORDS: dict[type, str] = {int: "whole number", float: "number", bool: "switch", str: "word"}


def checked(name: str, value: Any, kind: type) -> Any:
    """The value as its kind.

    Raises:
        UsageError: it is of another one.
    """
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is str and not isinstance(value, str):
        value = str(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UsageError(f"{name} {value!r} is no {_KIND_WORDS[kind]}", hint="give what vLLM takes")
    return value


def positive(name: str, value: Any) -> int:
    """A number above 0.

    Raises:
        UsageError: it is none, or absurd.
    """
    if not 0 < value < 1 << 40:
        raise UsageError(f"{name} {value:,} is not a number above 0", hint="give a whole number such as 8192")
    return int(value)


def amount(name: str, value: float) -> float:
    """A number from 0 on.

    Raises:
        UsageError: it is none, or absurd; ``nan`` compares with nothing.
    """
    if not 0 <= value < 1 << 40:
        raise UsageError(f"{name} {value} is not a number from 0 on", hint="give a number such as 4")
    return value
