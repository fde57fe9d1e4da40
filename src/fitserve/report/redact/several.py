"""Keys that stand in a row: vLLM's ``--api-key`` takes several.

Source: ``nargs="*"`` of ``--api-key`` in ``entrypoints/openai/cli_args.py`` of vLLM 0.10.0 to 0.33.0.
"""

import re
from collections.abc import Iterator

from fitserve.report.redact.named import NEXT_ITEM, QUOTE, VALUE, secret
from fitserve.report.redact.rule import LINE, Edit, Memory, Rule

_LINES = 12
_OPTION = re.compile(
    rb"(?i:--api[_-]key(?![\w-])=?|(?<![\w-])api[_-]key\\{0,3}[\"']?:(?=[ \t]*(?:\[[ \t]*)?\r?\n))"
)
_ITEM = re.compile(NEXT_ITEM + rb"(?!\\{0,3}[\"']?-)" + VALUE)
_LISTED = re.compile(
    rb"(?:[ \t]*\[)?(?:" + QUOTE + rb",|,)?[ \t]*\r?\n" + LINE + rb"[ \t]*(?:- )?(?=[\"'\\])" + VALUE
)
_COMMAND = re.compile(rb"vllm|serve|api_server")
_SHELL = re.compile(rb"[|&;<>()#]|\d?>|\\$")


def several_rules() -> list[Rule]:
    """Every value behind the option, on a command line, in a list in JSON or YAML, in vLLM's config file."""
    return [
        Rule(
            pattern=_OPTION,
            replace=_replace,
            probe=rb"api[_-]key",
            caseless=True,
            lines=_LINES,
        )
    ]


def _replace(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    text, at = match.string, match.end()
    is_command = _COMMAND.search(text, max(0, match.start() - 2_000), match.start()) is not None
    count = 1 if match[0].endswith(b":") else 0  # the first value of an option has a rule of its own
    while found := _ITEM.match(text, at) or _LISTED.match(text, at):
        group = "value" if found["value"] is not None else "open"
        value, start = found[group], found.start(group)
        is_bare = group == "open" and b"\n" not in found[0]
        if _SHELL.match(value) or (is_bare and count and not is_command):
            return
        if group == "open":
            value = value.rstrip(b",;)]}") or value
        if count:
            yield from secret(b"api_key", False, value, start, memory)
        at, count = start + len(value), count + 1
