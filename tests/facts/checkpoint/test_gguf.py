"""Headers of GGUF files."""

import io
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitserve.errors import InputError
from fitserve.facts.checkpoint import Checkpoint, Tensor, read_checkpoint
from fitserve.facts.checkpoint.gguf import read_gguf


def test_a_file_is_read(gguf_llama: bytes, tmp_path: Path) -> None:
    """Metadata become a configuration, tensors keep their types; the weights need not be there."""
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf_llama)

    found = read_checkpoint(str(path))

    assert ("gguf", "LlamaForCausalLM") == (found.format, found.config.architecture)
    assert (2, 64, 128) == tuple(
        found.config.integer(name) for name in ("num_hidden_layers", "hidden_size", "vocab_size")
    )
    assert Tensor("Q8_0", (32, 64), 32 * 2 * 34) == found.tensors["blk.0.attn_k.weight"]
    assert read_checkpoint(str(tmp_path)) == found


def test_every_cut_is_an_input_error(gguf_llama: bytes) -> None:
    """A file that ends anywhere within its header is refused."""
    for size in range(len(gguf_llama)):
        with pytest.raises(InputError):
            read_gguf(io.BytesIO(gguf_llama[:size]), "x.gguf")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GGML" + bytes(20), "begin with GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "cannot be"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "cannot be"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 50), "a text of"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 0, 1, 1, b"k", 77), "no type of metadata"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 9, 2), "an array of type 9"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 1, 0, 1, b"t", 500), "dimensions"),
        (b"GGUF" + struct.pack("<IQQQ1sIQIQ", 3, 1, 0, 1, b"t", 1, 1 << 50, 0, 0), "no shape"),
        (b"GGUF" + struct.pack("<IQQQ1sIQIQ", 3, 1, 0, 1, b"t", 1, 64, 99, 0), "no known type"),
        (b"GGUF" + struct.pack("<IQQQ1sIQIQ", 3, 1, 0, 1, b"t", 1, 33, 8, 0), "blocks of 32"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "no architecture"),
    ],
)
def test_damage_is_an_input_error(data: bytes, words: str) -> None:
    """Each kind of damage is refused with what is wrong."""
    with pytest.raises(InputError) as caught:
        read_gguf(io.BytesIO(data), "x.gguf")

    assert words in caught.value.what


@given(st.binary(max_size=120))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Whatever follows the first bytes, the answer is a checkpoint or an input error."""
    try:
        found = read_gguf(io.BytesIO(b"GGUF\x03\x00\x00\x00" + data), "x.gguf")
    except InputError:
        return

    assert isinstance(found, Checkpoint)


def test_a_part_of_a_split_model_is_no_model(gguf_llama: bytes) -> None:
    """A file that names the number of its parts holds some of the tensors only."""
    pairs = struct.unpack("<Q", gguf_llama[16:24])[0]
    key = b"split.count"
    split = struct.pack("<Q", len(key)) + key + struct.pack("<IH", 2, 3)
    data = gguf_llama[:16] + struct.pack("<Q", pairs + 1) + split + gguf_llama[24:]

    with pytest.raises(InputError) as caught:
        read_gguf(io.BytesIO(data), "x-00001-of-00003.gguf")

    assert ("it is one of the 3 files of a split model", "x-00001-of-00003.gguf: split.count") == (
        caught.value.what,
        caught.value.where,
    )
