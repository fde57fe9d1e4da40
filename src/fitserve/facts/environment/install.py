"""The vLLM that would run: its program, its Python, and what is installed beside it, read from metadata alone."""

import configparser
import json
import re
import shutil
import sys
from pathlib import Path

import msgspec

from fitserve.errors import InputError
from fitserve.facts.engine.find import _python_of_script
from fitserve.facts.engine.recipe import CPU_ENGINE, cache_root, engine_folder, engine_python
from fitserve.facts.environment.bounded import ask_program
from fitserve.units import Unknown

_ASK = "import json, platform, sys; print(json.dumps([platform.python_version(), sys.path]))"
_DIST = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+?)(?:-py[\d.]+)?\.(?:dist|egg)-info")
_IMAGE = re.compile(
    r"(?P<image>[\w.\-/:]*[\w\-]+):v?(?P<version>\d+\.\d+(?:\.\d+)?(?:\.?(?:rc|post|dev)\d+)?)(?:[-+][\w.\-]*)?"
)
_PYTHONS = ("python", "pypy")

PACKAGES = {
    "torch": ("torch",),
    "triton": ("triton", "triton-rocm", "pytorch-triton", "pytorch-triton-rocm"),
    "flash-attn": ("flash-attn", "flash-attn-3", "vllm-flash-attn", "flash-attn-4"),
    "flashinfer": ("flashinfer-python", "flashinfer"),
    "xformers": ("xformers",),
    "transformers": ("transformers",),
    "huggingface-hub": ("huggingface-hub",),
    "cuda-runtime": (
        "nvidia-cuda-runtime-cu13",
        "nvidia-cuda-runtime-cu12",
        "nvidia-cuda-runtime-cu11",
        "nvidia-cuda-runtime",
    ),
    "nccl": ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11"),
    "ray": ("ray",),
    "deep-gemm": ("deep-gemm",),
    "lmcache": ("lmcache",),
    "numpy": ("numpy",),
}
"""What is shown, and the distributions that bring it."""


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """An entry point that vLLM loads: its group (``vllm.general_plugins``), name, and the distribution that brings it."""

    group: str
    name: str
    distribution: str


class Install(msgspec.Struct, frozen=True, kw_only=True):
    """An installed vLLM.

    Attributes:
        found: how: ``given``, ``PATH``, ``python``, ``private`` (the engine of ``fitserve engine``), ``image``.
        program: the ``vllm`` script; empty where there is none.
        python: the Python that runs it; empty for an image.
        python_version: its version.
        distribution: what it was installed as.
        version: its version.
        packages: versions of what it needs and may use; None is not installed.
        plugins: entry points that it loads.
    """

    found: str
    program: str = ""
    python: str = ""
    python_version: str = ""
    distribution: str = "vllm"
    version: str
    packages: dict[str, str | None] = {}
    plugins: tuple[Plugin, ...] = ()


def find(spec: str | None, seconds: float) -> Install | Unknown:
    """The vLLM that is meant, or that a command here would start.

    Args:
        spec: a virtual environment, a Python, a ``vllm`` script, or an image with a version in its tag; None looks for a ``vllm`` on ``PATH``,
            then for a Python on ``PATH`` that has it, then for the private engine.
        seconds: the limit for a Python to answer.

    Raises:
        InputError: there is nothing by the name that was given.
    """
    if spec is not None:
        return _given(spec, seconds)
    script = shutil.which("vllm")
    if script:
        return _of_script(Path(script), "PATH", seconds)
    for name in ("python3", "python"):
        python = shutil.which(name)
        installed = _of_python(Path(python), "python", seconds) if python else Unknown("")
        if isinstance(installed, Install):
            return installed
    private = engine_python(engine_folder(CPU_ENGINE, cache_root()))
    if private.exists():
        return _of_python(private, "private", seconds)
    return Unknown("no vllm on PATH, and no Python there that has it")


def _given(spec: str, seconds: float) -> Install | Unknown:
    path = Path(spec).expanduser()
    if path.is_dir():
        python = path / "bin" / "python"
        if not python.exists():
            raise InputError(
                f"no virtual environment: {spec}", where=str(python), hint="name a folder that has bin/python"
            )
        return _of_python(python, "given", seconds)
    found = str(path) if path.exists() else shutil.which(spec)
    if found is None:
        image = _IMAGE.fullmatch(spec)
        if image:
            return Install(found="image", program=spec, version=image["version"])
        raise InputError(
            f"no such engine: {spec}",
            hint="name a virtual environment, its python, a vllm script, or an image with a version in its tag",
        )
    if Path(found).name.startswith(_PYTHONS):
        return _of_python(Path(found), "given", seconds)
    return _of_script(Path(found), "given", seconds)


def _of_script(script: Path, found: str, seconds: float) -> Install | Unknown:
    try:
        python = _python_of_script(script)
    except InputError as error:
        return Unknown(f"{script}: {error.what}")
    installed = _of_python(python, found, seconds)
    return (
        installed
        if isinstance(installed, Unknown)
        else msgspec.structs.replace(installed, program=str(script))
    )


def _of_python(python: Path, found: str, seconds: float) -> Install | Unknown:
    # Not resolved: the link's own place tells Python which environment it belongs to.
    python = python.absolute()
    if python == Path(sys.executable).absolute():
        version, folders = ".".join(map(str, sys.version_info[:3])), sys.path
    else:
        answer = ask_program([python, "-c", _ASK], seconds)
        if isinstance(answer, Unknown):
            return answer
        version, folders = json.loads(answer.splitlines()[-1])
    known = distributions([Path(folder) for folder in folders if folder])
    name = _vllm_among(known)
    if name is None:
        return Unknown(f"{python} has no vLLM")
    beside = python.parent / "vllm"
    return Install(
        found=found,
        program=str(beside) if beside.exists() else "",
        python=str(python),
        python_version=version,
        distribution=name,
        version=known[name][0],
        packages={
            label: next((known[each][0] for each in names if each in known), None)
            for label, names in PACKAGES.items()
        },
        plugins=_plugins(known),
    )


def distributions(folders: list[Path]) -> dict[str, tuple[str, Path]]:
    """The version and the metadata folder of each distribution, as its folder's name tells; the first on the path counts."""
    found: dict[str, tuple[str, Path]] = {}
    for folder in folders:
        try:
            names = sorted(path.name for path in folder.iterdir())
        except OSError:
            continue
        for name in names:
            if match := _DIST.fullmatch(name):
                found.setdefault(
                    re.sub(r"[-_.]+", "-", match["name"]).lower(), (match["version"], folder / name)
                )
    return found


def _vllm_among(known: dict[str, tuple[str, Path]]) -> str | None:
    """vLLM, or a build of it with a name of its own."""
    if "vllm" in known:
        return "vllm"
    for name in sorted(known):
        if name.startswith("vllm-") and any(
            section == "console_scripts" and key == "vllm" for section, key in _entry_points(known[name][1])
        ):
            return name
    return None


def _plugins(known: dict[str, tuple[str, Path]]) -> tuple[Plugin, ...]:
    return tuple(
        Plugin(group=group, name=name, distribution=distribution)
        for distribution, (_, folder) in sorted(known.items())
        for group, name in _entry_points(folder)
        if group.startswith("vllm.")
    )


def _entry_points(folder: Path) -> list[tuple[str, str]]:
    """Groups and names of a distribution's entry points."""
    try:
        text = (folder / "entry_points.txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    if "vllm" not in text:
        return []
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    try:
        parser.read_string(text)
    except configparser.Error:
        return []
    return [(section, name) for section in parser.sections() for name in parser[section]]
