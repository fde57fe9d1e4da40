"""The options that the installed vLLM itself has, asked from its parser once and kept."""

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from fitserve.facts.engine.pip import clean_environment
from fitserve.facts.engine.recipe import cache_root
from fitserve.facts.environment.bounded import ask_program
from fitserve.facts.environment.install import Install
from fitserve.facts.serve_options import full_name
from fitserve.units import Unknown

ASK_SECONDS = 180.0
"""Importing vLLM takes 10 s on two cores (measured, 0.32.0), the first time on a cold disk several times as long."""

_SCRIPT = Path(__file__).parent / "in_engine" / "list_flags.py"


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """One option.

    Attributes:
        name: vLLM's name with underscores.
        spellings: as it is typed.
        values: what it may be; None is anything of its type.
        type: what a value is read as; None for a switch.
        several: it takes more than one value.
        default: its default, as JSON.
        help: the beginning of vLLM's own words.
    """

    name: str
    spellings: tuple[str, ...]
    values: tuple[str, ...] | None
    type: str | None
    several: bool
    default: Any
    help: str


class FlagTable(msgspec.Struct, frozen=True, kw_only=True):
    """All options of one vLLM.

    Attributes:
        version: the release.
        flags: in the order of its help.
    """

    version: str
    flags: tuple[Flag, ...]

    def find(self, spelled: str) -> Flag | None:
        """The option by its name, or however it is spelled; None where this vLLM has none such."""
        wanted = spelled.strip()
        exact = [flag for flag in self.flags if wanted in (flag.name, *flag.spellings)]
        if exact:
            return exact[0]
        name = (
            full_name(wanted.partition("=")[0]).partition(".")[0]
            if wanted.startswith("-")
            else wanted.replace("-", "_")
        )
        return next((flag for flag in self.flags if flag.name == name), None)


def kept(install: Install) -> FlagTable | None:
    """What was asked before; None where this vLLM was never asked, or was changed since."""
    try:
        return msgspec.json.decode(_place(install).read_bytes(), type=FlagTable)
    except (OSError, msgspec.MsgspecError):
        return None


def ask(install: Install, seconds: float = ASK_SECONDS) -> FlagTable | Unknown:
    """What vLLM's parser says, from the cache or from a process of its own Python."""
    known = kept(install)
    if known is not None:
        return known
    if not install.python:
        return Unknown("an image is not started to be asked for its options")
    with tempfile.TemporaryDirectory(prefix="fitserve-flags-") as folder:
        reply = Path(folder, "flags")
        answer = ask_program([install.python, str(_SCRIPT), str(reply)], seconds, environ=clean_environment())
        if isinstance(answer, Unknown):
            return Unknown(f"vLLM's options: {answer.unknown}")
        try:
            flags = msgspec.json.decode(reply.read_bytes(), type=tuple[Flag, ...])
        except (OSError, msgspec.MsgspecError) as error:
            return Unknown(f"vLLM's options cannot be read: {error}")
    table = FlagTable(version=install.version, flags=flags)
    _keep(_place(install), table)
    return table


def _keep(place: Path, table: FlagTable) -> None:
    """Write it whole or not at all; a cache that cannot be written is no failure."""
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_suffix(f".{os.getpid()}")
        part.write_bytes(msgspec.json.encode(table))
        part.replace(place)


def _place(install: Install) -> Path:
    """By version, Python, and the time at which vLLM was installed there."""
    folder = Path(install.python).parent.parent
    try:
        changed = max(
            (path.stat().st_mtime_ns for path in folder.glob("lib/python*/site-packages/vllm*")), default=0
        )
    except OSError:
        changed = 0
    key = f"{install.python}\0{install.version}\0{changed}\0{_SCRIPT.stat().st_mtime_ns}"
    return cache_root() / "flags" / f"{install.version}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
