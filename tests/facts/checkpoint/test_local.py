"""Checkpoints in directories."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from fitserve.errors import InputError
from fitserve.facts.checkpoint import read_checkpoint

Write = Callable[..., Path]


@pytest.mark.parametrize("shards", [1, 3])
def test_a_directory_is_read(write_llama: Write, llama_bytes: int, shards: int) -> None:
    """Configuration, every tensor and the bytes of all, from one file or several."""
    folder = write_llama(shards)

    found = read_checkpoint(str(folder))

    assert ("LlamaForCausalLM", "safetensors") == (found.config.architecture, found.format)
    assert (2 + 2 * 9 + 1, llama_bytes) == (len(found.tensors), found.size_bytes)
    assert (128, 64) == found.tensors["lm_head.weight"].shape
    assert found.quantization is None


def test_weights_need_not_be_there(write_llama: Write) -> None:
    """A configuration alone is a checkpoint; neither tensors nor size are known."""
    folder = write_llama()
    (folder / "model.safetensors").unlink()

    found = read_checkpoint(str(folder))

    assert ({}, None, "config") == (found.tensors, found.size_bytes, found.format)


def test_the_index_tells_the_size(write_llama: Write, llama_bytes: int) -> None:
    """Where a shard is missing no tensors are known, but the index still knows the bytes of all."""
    folder = write_llama(3)
    (folder / "model-00002-of-00003.safetensors").unlink()

    found = read_checkpoint(str(folder))

    assert ({}, llama_bytes) == (found.tensors, found.size_bytes)


def test_the_second_copy_does_not_count(write_llama: Write, llama_bytes: int) -> None:
    """Mistral's own layout beside the usual one is not loaded."""
    folder = write_llama()
    (folder / "consolidated.safetensors").write_bytes((folder / "model.safetensors").read_bytes())

    assert llama_bytes == read_checkpoint(str(folder)).size_bytes


def test_modelopts_file_is_the_quantisation(write_llama: Write) -> None:
    """``hf_quant_config.json`` beside the configuration counts."""
    folder = write_llama()
    section = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}
    (folder / "hf_quant_config.json").write_text(json.dumps(section), encoding="utf-8")

    assert section == read_checkpoint(str(folder)).quantization


def test_the_configuration_file_names_its_directory(write_llama: Write) -> None:
    """``config.json`` itself may be given."""
    folder = write_llama()

    assert read_checkpoint(str(folder)).size_bytes == read_checkpoint(str(folder / "config.json")).size_bytes


def test_links_into_a_cache_are_followed(
    write_llama: Write, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The Hub's cache keeps files behind links."""
    folder = write_llama()
    snapshot = tmp_path_factory.mktemp("snapshot")
    for path in folder.iterdir():
        (snapshot / path.name).symlink_to(path)

    assert read_checkpoint(str(folder)).tensors == read_checkpoint(str(snapshot)).tensors


def test_a_loop_of_links_is_an_input_error(tmp_path: Path) -> None:
    """A link to itself is refused, not followed for ever."""
    (tmp_path / "config.json").symlink_to(tmp_path / "config.json")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")

    for name in (str(tmp_path), str(tmp_path / "loop")):
        with pytest.raises(InputError):
            read_checkpoint(name)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": ', "[" * 100_000, '"x"', "\x00"])
def test_a_damaged_configuration_is_an_input_error(tmp_path: Path, text: str) -> None:
    """What is no JSON object is refused with the file's name."""
    (tmp_path / "config.json").write_text(text, encoding="utf-8")

    with pytest.raises(InputError) as caught:
        read_checkpoint(str(tmp_path))

    assert caught.value.where.endswith("config.json")


def test_python_s_infinity_counts(tmp_path: Path) -> None:
    """Published configurations hold ``Infinity``, which Python writes and reads."""
    (tmp_path / "config.json").write_text(
        '{"architectures": ["X"], "limit": [0.0, Infinity]}', encoding="utf-8"
    )

    assert "X" == read_checkpoint(str(tmp_path)).config.architecture


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/x.safetensors", "a/../../b.safetensors", "x.bin", 3]
)
def test_an_index_stays_in_its_directory(write_llama: Write, name: object) -> None:
    """A file outside the directory is never opened."""
    folder = write_llama()
    text = json.dumps({"weight_map": {"w": name}})
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")

    with pytest.raises(InputError) as caught:
        read_checkpoint(str(folder))

    assert caught.value.where.endswith("model.safetensors.index.json: w")


@pytest.mark.parametrize("cut", [0, 3, 8, 40, -1])
def test_a_truncated_file_is_an_input_error(write_llama: Write, cut: int) -> None:
    """A download that stopped is refused with the file's name."""
    path = write_llama() / "model.safetensors"
    path.write_bytes(path.read_bytes()[:cut])

    with pytest.raises(InputError) as caught:
        read_checkpoint(str(path.parent))

    assert "model.safetensors" in caught.value.where


def test_a_header_longer_than_the_file_is_not_read(write_llama: Write) -> None:
    """A file that claims 4 GiB of header costs no memory."""
    path = write_llama() / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 4 << 30) + b"{}")

    with pytest.raises(InputError):
        read_checkpoint(str(path.parent))


@pytest.mark.parametrize("name", ["/no/such/model", "./missing", "a/b/c", "", "-x", "a" * 5000, "a\0b"])
def test_what_is_no_model_is_an_input_error(name: str) -> None:
    """What is neither there nor an id is refused without asking anyone."""
    with pytest.raises(InputError):
        read_checkpoint(name)


def test_code_in_a_repository_is_never_run(write_llama: Write) -> None:
    """A model that brings code is read as data."""
    folder = write_llama(auto_map={"AutoConfig": "evil.Config"}, architectures=["EvilForCausalLM"])
    (folder / "evil.py").write_text("raise SystemExit('ran')\n", encoding="utf-8")

    assert "EvilForCausalLM" == read_checkpoint(str(folder)).config.architecture


POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:0000000000000000000000000000000000000000000000000000000000000000\nsize 1503300328\n"
)


@pytest.mark.parametrize(
    ("shards", "name"),
    [
        (1, "config.json"),
        (1, "model.safetensors"),
        (3, "model-00002-of-00003.safetensors"),
        (3, "model.safetensors.index.json"),
    ],
)
def test_a_pointer_in_the_place_of_a_file_is_named(write_llama: Write, shards: int, name: str) -> None:
    """A clone without Git LFS has pointers; the answer says so, and which file it is."""
    path = write_llama(shards) / name
    path.write_text(POINTER, encoding="utf-8")

    with pytest.raises(InputError) as caught:
        read_checkpoint(str(path.parent))

    assert ("it is a Git LFS pointer: the file itself was not downloaded", str(path)) == (
        caught.value.what,
        caught.value.where,
    )


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pt", "model.gguf"])
def test_pointers_of_other_formats_are_named(write_llama: Write, name: str) -> None:
    """Files that vLLM would load for want of safetensors count too."""
    folder = write_llama()
    (folder / "model.safetensors").unlink()
    path = folder / name
    path.write_text(POINTER, encoding="utf-8")

    with pytest.raises(InputError) as caught:
        read_checkpoint(str(path if path.suffix == ".gguf" else folder))

    assert str(path) == caught.value.where


def test_a_shard_that_is_missing_does_not_hide_a_pointer(write_llama: Write) -> None:
    """Of an index whose files are partly there, those that are there are looked at."""
    folder = write_llama(3)
    (folder / "model-00001-of-00003.safetensors").unlink()
    (folder / "model-00003-of-00003.safetensors").write_text(POINTER, encoding="utf-8")

    with pytest.raises(InputError) as caught:
        read_checkpoint(str(folder))

    assert caught.value.where.endswith("model-00003-of-00003.safetensors")


def test_a_pipe_is_no_file_of_weights(write_llama: Write, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A pipe that nobody writes to is refused, not waited for."""
    folder = write_llama()
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    alone = tmp_path_factory.mktemp("gguf")
    os.mkfifo(alone / "model.gguf")

    for place in (folder, alone):
        with pytest.raises(InputError) as caught:
            read_checkpoint(str(place))

        assert "it is no file" == caught.value.what


@pytest.mark.parametrize(
    ("files", "named", "what"),
    [
        (["adapter_config.json", "adapter_model.safetensors"], "adapter_config.json", "an adapter"),
        (["params.json", "consolidated.safetensors"], "params.json", "Mistral's own layout"),
        (["model_index.json"], "model_index.json", "a diffusion pipeline"),
        (["a-Q4_K_M.gguf", "a-Q8_0.gguf"], "", "2 GGUF files: a-Q4_K_M.gguf, a-Q8_0.gguf"),
        (["README.md"], "", "there is no config.json"),
    ],
)
def test_a_folder_without_a_configuration_says_what_it_is(
    tmp_path: Path, files: list[str], named: str, what: str
) -> None:
    """What the folder holds instead of a model is said with the file that shows it."""
    for name in files:
        (tmp_path / name).write_text("{}", encoding="utf-8")

    with pytest.raises(InputError) as caught:
        read_checkpoint(str(tmp_path))

    assert what in caught.value.what
    assert str(tmp_path / named) == caught.value.where
