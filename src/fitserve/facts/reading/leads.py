"""Prefixes that only one log's writer has, learned from the records behind them."""

import re
from collections import Counter
from collections.abc import Iterable

_MOST_CHARACTERS = 200
_FEWEST_LINES = 2
_MOST_LEADS = 4
_SIGN = re.compile(r"\w+| +|[^\w ]")
_DIGITS = re.compile(r"\d+")
_PROGRESS = re.compile(r"\d%\||it/s|s/it|\d/\d+ \[")


def leads_of(prefixes: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """Patterns of the prefixes that come again, the commonest first.

    Words that differ between prefixes of one form become a number or a word in the pattern, all digits any digits; what is
    constant stays.

    Args:
        prefixes: what stood before vLLM's own prefix, line by line.
    """
    forms: dict[str, list[list[str]]] = {}
    lines: Counter[str] = Counter()
    for prefix, count in Counter(prefixes).items():
        if 0 < len(prefix) <= _MOST_CHARACTERS and prefix.strip() and not _PROGRESS.search(prefix):
            signs = _SIGN.findall(prefix)
            form = "".join(_kind(sign) for sign in signs)
            forms.setdefault(form, []).append(signs)
            lines[form] += count
    common = (form for form, count in lines.most_common(_MOST_LEADS) if count >= _FEWEST_LINES)
    patterns = (_pattern(forms[form]) for form in common)
    return tuple(pattern for pattern in patterns if pattern)


def _kind(sign: str) -> str:
    return "w" if sign[0].isalnum() or sign[0] == "_" else sign[0]


def _pattern(rows: list[list[str]]) -> re.Pattern[str] | None:
    """The pattern of prefixes of one form; None if nothing in it is constant but spaces."""
    parts: list[str] = []
    is_telling = False
    for signs in zip(*rows, strict=True):
        if len(set(signs)) == 1:
            parts.append(_DIGITS.sub(r"\\d{1,20}", re.escape(signs[0])))
            is_telling = is_telling or not (signs[0].isspace() or signs[0].isdecimal())
        elif signs[0][0] == " ":
            parts.append(" {1,40}")
        else:
            parts.append(r"\d{1,20}" if all(sign.isdecimal() for sign in signs) else r"\w{1,80}")
    return re.compile("".join(parts)) if is_telling else None
