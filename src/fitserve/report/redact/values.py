"""Values made of texts: structs, lists and mappings."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

_OPTION = re.compile(r"--?[A-Za-z][A-Za-z0-9_\-]*")
_SEVERAL = ("--api-key", "--api_key")
"""Options with more than one secret behind them."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")

_LINE = "text"
"""A line of a log in a value of fitserve's own: read as it stands, not as what a client has written."""


def redacted(value: Any, text: Callable[[str], str]) -> Any:
    """The value with each of its texts redacted; an item behind an option, and a value behind a name, are read together with it.

    Args:
        value: what is to leave.
        text: redacts one text.
    """
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Path):
        return Path(text(str(value)))
    if isinstance(value, msgspec.Struct):
        fields = {name: _behind(name, getattr(value, name), text) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **fields)
    if isinstance(value, dict):
        return {_key(key, text): _behind(key, item, text) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(_items(list(value), text))
    return value


def _key(key: Any, text: Callable[[str], str]) -> Any:
    return text(key) if isinstance(key, str) and not _PLAIN.fullmatch(key) else key


def _behind(name: Any, value: Any, text: Callable[[str], str]) -> Any:
    """The value of a name, as the text ``name=value`` would read."""
    is_named = isinstance(name, str) and name != _LINE and _PLAIN.fullmatch(name)
    if isinstance(value, str) and is_named and "\n" not in value:
        quote = "" if "'" in value or name.isupper() else "'"
        prefix, suffix = f"{name}={quote}", quote
        changed = text(prefix + value + suffix)
        if changed.startswith(prefix) and changed.endswith(suffix):
            return text(changed[len(prefix) : len(changed) - len(suffix)])
        return text(value)
    if (
        isinstance(value, list)
        and isinstance(name, str)
        and value
        and all(isinstance(item, str) for item in value)
    ):
        return [_behind(name, item, text) for item in _items(value, text)]
    return redacted(value, text)


def _items(items: list[Any], text: Callable[[str], str]) -> list[Any]:
    """A list's items, each option read together with what follows it."""
    done: list[Any] = []
    option = ""
    for item in items:
        if isinstance(item, str) and option and not item.startswith("-"):
            done.append(_behind(option.lstrip("-"), item, text))
            option = option if option in _SEVERAL else ""
        else:
            done.append(redacted(item, text))
            option = item if isinstance(item, str) and _OPTION.fullmatch(item) else ""
    return done
