"""Colours and other control sequences of terminals."""

import re

_CONTROL = re.compile(
    r"\x1b(?:\[[0-9;:?]{0,40}[ -/]?[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)?|[()][0-9A-B]|[=>78cDEHM])?"
    r"|[\x00\x07\x08\x7f]"
)
_WRITTEN_OUT = re.compile(
    r"(?:\^\[|\\x1b|\\u001b|\\033|#033|\N{SYMBOL FOR ESCAPE})\[[0-9;]{0,20}[mKABJ]"
    r"|\[(?:0|1|2|4|22|24|3[0-9]|9[0-7]|0;0|[0-2];3[0-7]|[0-2];9[0-7]|38;5;\d{1,3})m"
)
_CONTROL_SIGNS = "\x1b\x00\x07\x08\x7f"
_WRITTEN_OUT_ENDS = ("0m", "9m", "[m", "[K", "2m", "4m", "1m", "[A")


def without_colours(text: str) -> str:
    r"""The text without control sequences and NULs.

    A sequence counts also where a tool has written its escape character out, or a page has lost it.

    Source: ECMA-48; ``cat -v`` (``^[``), rsyslog's ``$EscapeControlCharactersOnReceive`` (``#033``), JSON (``\u001b``).
    """
    if any(sign in text for sign in _CONTROL_SIGNS):
        text = _CONTROL.sub("", text)
    if any(end in text for end in _WRITTEN_OUT_ENDS):
        text = _WRITTEN_OUT.sub("", text)
    return text
