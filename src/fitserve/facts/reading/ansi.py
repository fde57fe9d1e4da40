"""Colours and other control sequences of terminals."""

import re

_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-9;:?]{0,40}[ -/]?[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)?|[()][0-9A-B]|[=>78cDEHM])?"
    r"|[\x00\x07\x08\x7f]"
    r"|(?:\^\[|\\x1b|\\u001b|\\033|#033|\N{SYMBOL FOR ESCAPE})\[[0-9;]{0,20}[mKABJ]"
    r"|\[(?:0|1|2|4|22|24|3[0-9]|9[0-7]|0;0|[0-2];3[0-7]|[0-2];9[0-7]|38;5;\d{1,3})m"
)
_SUSPECT = re.compile(r"\[[0-9;]{0,20}[mKABJ]")


def without_colours(text: str) -> str:
    r"""The text without control sequences and NULs.

    A sequence counts also where a tool has written its escape character out, or a page has lost it.

    Source: ECMA-48; ``cat -v`` (``^[``), rsyslog's ``$EscapeControlCharactersOnReceive`` (``#033``), JSON (``\u001b``).
    """
    if text.isprintable() and not _SUSPECT.search(text):
        return text
    return _SEQUENCE.sub("", text)
