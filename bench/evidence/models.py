"""The configurations that evidence is about: those of a folder, and the published ones that ``aiconfigurator-core`` carries."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fitserve.facts.checkpoint import Checkpoint, read_checkpoint
from fitserve.facts.model_config import parse_config

_SUFFIX = "_config.json"


def published_folder() -> Path | None:
    """Where ``aiconfigurator-core`` keeps its configurations; None where it is not installed."""
    found = find_spec("aiconfigurator_core")
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0]) / "model_configs"


def published(model: str) -> Checkpoint:
    """A published model's checkpoint by ``ORG/NAME``: its configuration alone.

    Raises:
        LookupError: there is none.
    """
    folder, name = published_folder(), model.replace("/", "--")
    if folder is None:
        raise LookupError("aiconfigurator-core is not installed")
    path = folder / f"{name}{_SUFFIX}"
    if not path.exists():
        raise LookupError(f"aiconfigurator-core carries no configuration of {model}")
    quant = folder / f"{name}_hf_quant{_SUFFIX}"
    hf_quant = quant.read_bytes() if quant.exists() else None
    return Checkpoint(config=parse_config(path.read_bytes(), hf_quant=hf_quant))


def checkpoint_of(model: str | None, folder: Path) -> Checkpoint | None:
    """The model by its full name, whatever its letters' case: from the folder, else a published one; None where neither is."""
    name = (model or "").replace("/", "--").lower()
    if (found := _names(folder, "").get(name)) is not None:
        return read_checkpoint(str(folder / found))
    inside = published_folder()
    if inside is not None and (found := _names(inside, _SUFFIX).get(name)) is not None:
        return published(found.removesuffix(_SUFFIX))
    return None


@cache
def _names(folder: Path, suffix: str) -> dict[str, str]:
    return {path.name.removesuffix(suffix).lower(): path.name for path in folder.glob(f"*{suffix}")}
