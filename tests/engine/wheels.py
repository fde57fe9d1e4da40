"""Small projects for pip to install in place of vLLM: a wheel, and a source folder whose build waits to be let go."""

import base64
import hashlib
import zipfile
from pathlib import Path

from fitserve.facts.engine.recipe import Recipe

BACKEND = """
import pathlib, time, zipfile

HERE = pathlib.Path(__file__).parent

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with open(HERE / "builds", "a") as log:
        log.write("one\\n")
    while (HERE / "closed").exists():
        time.sleep(0.05)
    name = "gated-1.0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w") as wheel:
        wheel.writestr("gated.py", "")
        wheel.writestr("gated-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: gated\\nVersion: 1.0\\n")
        wheel.writestr("gated-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("gated-1.0.dist-info/RECORD", "")
    return name
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def write_wheel(folder: Path, name: str, source: str) -> Path:
    """A wheel of one module, with the record of its files as build tools write it."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in files.items()]
    files[f"{info}/RECORD"] = "".join(record) + f"{info}/RECORD,,\n"
    wheel_path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel_path, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return wheel_path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def write_gated_project(folder: Path) -> Path:
    """A source folder. Each build adds a line to ``builds`` and waits while there is a file ``closed``."""
    folder.mkdir()
    (folder / "backend.py").write_text(BACKEND, encoding="utf-8")
    (folder / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    return folder


def small_recipe(*requirements: Path | str, modules: tuple[str, ...], **others: object) -> Recipe:
    """An engine of small packages."""
    values = {"name": "small", "disk_bytes": 0, **others}
    return Recipe(requirements=tuple(str(each) for each in requirements), modules=modules, **values)  # type: ignore[arg-type]
