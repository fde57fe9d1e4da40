"""A model by its directory, its GGUF file or its Hub id."""

import re
from pathlib import Path

from fitserve.errors import InputError
from fitserve.facts.checkpoint.checkpoint import Checkpoint
from fitserve.facts.checkpoint.local import read_directory, read_gguf_file

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?")


def read_checkpoint(path_or_id: str, *, revision: str | None = None, fetch: bool = True) -> Checkpoint:
    """Read what a model's files say, without its weights. What exists locally is read locally and nothing is fetched.

    Args:
        path_or_id: a directory with ``config.json``, a GGUF file, or an id on the Hub.
        revision: a branch, tag or commit on the Hub.
        fetch: False to ask no network: of the Hub's models only those that lie in the local cache.

    Raises:
        InputError: it is none of these, it is damaged, or the Hub does not give it.
    """
    path = Path(path_or_id).expanduser()
    try:
        if path.is_dir():
            return read_directory(path)
        if path.is_file():
            return _read_file(path)
        broken = path.is_symlink()
    except (OSError, ValueError) as error:
        raise InputError(f"it cannot be read: {error}", where=path_or_id) from error
    if broken or not _HUB_ID.fullmatch(path_or_id):
        raise InputError(
            "there is no such directory or file",
            where=path_or_id,
            hint="give a local directory, or an id like ORG/NAME",
        )
    from fitserve.facts.checkpoint.hub import read_hub

    return read_hub(path_or_id, revision, fetch=fetch)


def _read_file(path: Path) -> Checkpoint:
    if path.suffix == ".gguf":
        return read_gguf_file(path)
    if path.name == "config.json":
        return read_directory(path.parent)
    raise InputError(
        "it is no model",
        where=str(path),
        hint="give the directory with config.json, or a file ending in .gguf",
    )
