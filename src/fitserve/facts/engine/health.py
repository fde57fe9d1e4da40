"""Whether a private engine is whole: judged from its files in a fraction of a second, never from its mere presence."""

import csv
from pathlib import Path
from typing import Literal

import msgspec

from fitserve.facts.engine.recipe import Recipe, engine_python

STAMP_NAME = "fitserve-engine.json"


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """Written last, after the imports have been tried: what a finished installation consists of."""

    recipe: Recipe
    distributions: dict[str, str]


class EngineState(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in an engine's folder.

    Attributes:
        state: whole, not there, or not to be trusted.
        reason: what is wrong; empty where nothing is.
        distributions: name and version of what is in it.
    """

    state: Literal["ready", "absent", "broken"]
    reason: str = ""
    distributions: dict[str, str] = {}


def engine_state(folder: Path, recipe: Recipe) -> EngineState:
    """Look at an engine's folder: the stamp, the Python, the distributions, and each file they recorded.

    About 35,000 files are asked for their size; their contents are not read.
    """
    if not folder.exists():
        return EngineState(state="absent")
    reason = _fault(folder, recipe)
    return EngineState(
        state="broken" if reason else "ready", reason=reason, distributions=installed_distributions(folder)
    )


def write_stamp(folder: Path, recipe: Recipe) -> None:
    """Declare the installation finished."""
    stamp = Stamp(recipe=recipe, distributions=installed_distributions(folder))
    (folder / STAMP_NAME).write_bytes(msgspec.json.format(msgspec.json.encode(stamp)))


def installed_distributions(folder: Path) -> dict[str, str]:
    """Name and version of each installed distribution, from the names of the ``dist-info`` folders."""
    names = [info.name.removesuffix(".dist-info").rpartition("-") for info in _dist_infos(folder)]
    return {name: version for name, _, version in names}


def _dist_infos(folder: Path) -> list[Path]:
    return sorted(folder.glob("lib/python*/site-packages/*.dist-info"))


def _fault(folder: Path, recipe: Recipe) -> str:
    if not engine_python(folder).exists():
        return "its python is missing"
    try:
        stamp = msgspec.json.decode((folder / STAMP_NAME).read_bytes(), type=Stamp)
    except OSError:
        return "its installation was not finished"
    except msgspec.DecodeError:
        return "its stamp cannot be read"
    if stamp.recipe != recipe:
        return "it was made from another recipe"
    if stamp.distributions != installed_distributions(folder):
        return "its packages have been changed"
    return _damage(folder)


def _damage(folder: Path) -> str:
    """The first recorded file that is missing or of another size; compiled Python is not counted."""
    for info in _dist_infos(folder):
        try:
            with (info / "RECORD").open(newline="", encoding="utf-8") as record:
                for name, _, size in csv.reader(record):
                    if name.endswith(".pyc"):
                        continue
                    found_bytes = (info.parent / name).stat().st_size
                    if size and found_bytes != int(size):
                        return f"{name} has another size than it was installed with"
        except FileNotFoundError as error:
            return f"{Path(error.filename).relative_to(info.parent)} is missing"
        except (OSError, ValueError):
            return f"{info.name} cannot be read"
    return ""
