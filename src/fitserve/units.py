"""Sizes, and numbers that say where they came from.

Sizes are whole bytes everywhere; a rounded or estimated one is an interval. GiB = 2**30 bytes.
"""

from typing import Any, Literal

import msgspec

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

Basis = Literal["measured", "read", "probed", "given", "computed", "estimated"]


class Quantity(msgspec.Struct, frozen=True, kw_only=True):
    """A number that is known within an interval.

    Attributes:
        low: the smallest value that fits what was seen.
        expected: the value to reckon with.
        high: the largest value that fits what was seen.
        basis: how it is known.
        source: where it is from, such as ``line 214`` or ``config.json``.
    """

    low: int
    expected: int
    high: int
    basis: Basis
    source: str

    @classmethod
    def exact(cls, value: int, basis: Basis, source: str) -> "Quantity":
        """A number without doubt."""
        return cls(low=value, expected=value, high=value, basis=basis, source=source)

    @classmethod
    def printed_gib(cls, text: str, source: str) -> "Quantity":
        """The bytes behind a printed GiB figure: ``9.32`` may be anything that rounds to it.

        Args:
            text: the decimal number as printed, without its unit.
            source: where it was printed.
        """
        decimals = len(text.partition(".")[2])
        half = GIB / (2 * 10**decimals)
        middle = float(text) * GIB
        return cls(
            low=max(0, round(middle - half)),
            expected=round(middle),
            high=round(middle + half),
            basis="measured",
            source=source,
        )


class Unknown(msgspec.Struct, frozen=True):
    """A value that is not known, and why."""

    unknown: str


Size = Quantity | Unknown


def gib(size_bytes: float) -> str:
    """Bytes as GiB with two decimals, as vLLM prints them: ``9.32 GiB``."""
    return f"{size_bytes / GIB:,.2f} GiB"


def short_size(size_bytes: float) -> str:
    """Bytes in the unit that torch prints them in: ``20.00 MiB`` below 1 GiB, ``1.15 GiB`` from there on.

    Source: torch 2.x ``c10/cuda/CUDACachingAllocator.cpp``, ``format_size``.
    """
    return gib(size_bytes) if size_bytes >= GIB else f"{size_bytes / MIB:,.2f} MiB"


def to_builtins(value: Any) -> Any:
    """A struct as plain JSON values, for printing."""
    return msgspec.to_builtins(value)
