"""Exactly which model a folder holds."""

import json
import shutil
from pathlib import Path

import pytest

from fitserve.errors import InputError
from fitserve.facts.environment.model import identify

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
    "vocab_size": 128, "intermediate_size": 128,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a configuration and a large file."""
    root = tmp_path / "orion"
    root.mkdir()
    (root / "config.json").write_text(
        json.dumps({**CONFIG, "quantization_config": {"quant_method": "AWQ", "bits": 4}})
    )
    (root / "extra.bin").write_bytes(b"0" * (5 << 20))
    return root


def test_a_folder(folder: Path, tmp_path: Path) -> None:
    """Architecture, method, size; the fingerprint is that of the content, wherever it lies."""
    found = identify(str(folder))
    copy = shutil.copytree(folder, tmp_path / "copy")

    assert ("LlamaForCausalLM", "awq", "", str(folder)) == (
        found.architecture,
        found.quantization,
        found.revision,
        found.source,
    )
    assert found.size_bytes == sum(path.stat().st_size for path in folder.iterdir())
    assert found.fingerprint == identify(str(copy)).fingerprint


@pytest.mark.parametrize("change", ["small", "end of a large one", "name"])
def test_a_change_is_seen(folder: Path, change: str) -> None:
    """Another content, another end of a large file, another name: another model."""
    before = identify(str(folder)).fingerprint
    if change == "small":
        (folder / "config.json").write_text(json.dumps(CONFIG))
    elif change == "name":
        (folder / "extra.bin").rename(folder / "extra2.bin")
    else:
        with (folder / "extra.bin").open("r+b") as file:
            file.seek(-1, 2)
            file.write(b"1")

    assert before != identify(str(folder)).fingerprint


def test_a_revision_of_the_hub(folder: Path, tmp_path: Path) -> None:
    """A folder of the Hub's cache is named by its commit."""
    commit = "b968826d9c46dd6066d109eabc6255188de91218"
    snapshot = tmp_path / "hub/models--acme--orion/snapshots" / commit
    shutil.copytree(folder, snapshot)

    assert commit == identify(str(snapshot)).revision


def test_what_is_not_here(tmp_path: Path) -> None:
    """Nothing is fetched to find out."""
    with pytest.raises(InputError):
        identify(str(tmp_path / "nowhere"))
