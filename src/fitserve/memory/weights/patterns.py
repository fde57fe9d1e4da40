"""Regular expressions of a checkpoint's configuration, whose author is not known: none may be wrong, or take for ever.

Published configurations have a few wildcards in a row. What a backtracking matcher needs exponential time for, a repeated group that
can match one text in several ways, is in none of them.
"""

import re

from fitserve.memory.weights.shapes import NotModelledError

_MOST_LETTERS = 1000
_MOST_REPEATS = 4
"""Published configurations have 2 at most (those that ``aiconfigurator-core`` 0.12.0 carries).

Source: measured. A name of 73 letters that ``.*`` so often and a letter do not match takes 0.1 ms with 3 of them, 2 ms with 4, 34 ms with
5 and 480 ms with 6; a model has thousands of names.
"""

_REPEATS = "*+{"


def compiled(text: str) -> re.Pattern[str]:
    """The pattern.

    Raises:
        NotModelledError: it is no regular expression, or one that may take for ever.
    """
    if len(text) > _MOST_LETTERS or _may_take_for_ever(text):
        raise NotModelledError(f"the pattern {text[:60]!r} of the quantisation may take for ever")
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise NotModelledError(
            f"{text[:60]!r} of the quantisation is no regular expression: {error}"
        ) from error


def _may_take_for_ever(text: str) -> bool:
    """True for a repeated group with a repeat or a choice inside of it, and for too many repeats in a row."""
    plain = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "x", text, flags=re.DOTALL)
    open_groups, repeats = [False], 0
    for at, sign in enumerate(plain):
        if sign == "(":
            open_groups.append(False)
        elif sign == ")" and len(open_groups) > 1:
            varies = open_groups.pop()
            if varies and plain[at + 1 : at + 2] in tuple(_REPEATS):
                return True
            open_groups[-1] |= varies
        elif sign in _REPEATS:
            repeats += 1
            open_groups[-1] = True
        elif sign == "|":
            open_groups[-1] = True
    return repeats > _MOST_REPEATS
