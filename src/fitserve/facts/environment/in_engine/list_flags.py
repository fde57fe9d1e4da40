"""Writes the options of ``vllm serve``; run by vLLM's Python as ``python list_flags.py FILE``.

The parser that vLLM builds is asked, not its help's text: ``make_arg_parser`` of 0.6 to 0.33, wherever it lies in that release.
"""

import argparse
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

_QUIET = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
_MAKERS = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
_PARSERS = ("vllm.utils.argparse_utils", "vllm.utils.argparse", "vllm.utils")
_HELP_LETTERS = 400
_KINDS = {"loads": "json", "_optional_type": "str", "<lambda>": "str"}


def found(places: tuple[str, ...], name: str) -> Any:
    """The first of the modules that has such a name.

    Raises:
        ImportError: none has.
    """
    reasons = []
    for place in places:
        try:
            return getattr(importlib.import_module(place), name)
        except (ImportError, AttributeError) as error:
            reasons.append(f"{place}: {error}")
    raise ImportError("; ".join(reasons))


def described(action: argparse.Action) -> dict[str, Any]:
    """One option as JSON."""
    values = action.choices
    return {
        "name": action.dest,
        "spellings": list(action.option_strings),
        "values": [str(value) for value in values] if values is not None else None,
        "type": None if action.nargs == 0 else kind(action.type),
        "several": action.nargs in ("*", "+") or (isinstance(action.nargs, int) and action.nargs > 1),
        "default": plain(action.default),
        "help": " ".join((action.help or "").split())[:_HELP_LETTERS],
    }


def kind(reader: Any) -> str:
    """What a value is read as: ``int``, ``json``, or the name of vLLM's own reader; of a wrapped reader the inner one's."""
    for cell in getattr(reader, "__closure__", None) or ():
        if callable(cell.cell_contents):
            return kind(cell.cell_contents)
    name = getattr(reader, "__name__", "str")
    return _KINDS.get(name, name)


def built_parser() -> argparse.ArgumentParser:
    """The parser of ``vllm serve``; where vLLM finds no device to be built for, it is told that there is a CPU."""
    make, parser = found(_MAKERS, "make_arg_parser"), found(_PARSERS, "FlexibleArgumentParser")
    try:
        built: argparse.ArgumentParser = make(parser(prog="vllm serve"))
    except RuntimeError:
        importlib.import_module("vllm.platforms").current_platform.device_type = "cpu"
        built = make(parser(prog="vllm serve"))
    return built


def plain(value: Any) -> Any:
    """A default as JSON has it; what JSON has not as its text."""
    if value is argparse.SUPPRESS:
        return None
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return str(value)
    return value


def main() -> None:
    """Build the parser and write its options."""
    os.environ.update(_QUIET)
    actions = built_parser()._actions  # noqa: SLF001 - argparse tells its options nowhere else
    options = [described(action) for action in actions if action.option_strings and action.dest != "help"]
    Path(sys.argv[1]).write_text(json.dumps(options), encoding="utf-8")


if __name__ == "__main__":
    main()
