"""Headers of safetensors files, whole and damaged."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitserve.errors import InputError
from fitserve.facts.checkpoint import Tensor
from fitserve.facts.checkpoint.safetensors_header import header_length, parse_header


def header(**tensor: object) -> bytes:
    """A header of one tensor, a bfloat16 vector of 4 unless said otherwise."""
    return json.dumps({"w": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]} | tensor}).encode()


def test_a_header_is_read() -> None:
    """Names, types, shapes and bytes; the metadata is no tensor."""
    text = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "a": {"dtype": "F8_E4M3", "shape": [3, 5], "data_offsets": [0, 15]},
            "b": {"dtype": "F32", "shape": [], "data_offsets": [15, 19]},
            "c": {"dtype": "BF16", "shape": [0, 7], "data_offsets": [19, 19]},
        }
    ).encode()

    found = parse_header(text, "x.safetensors", 19)

    assert {
        "a": Tensor("F8_E4M3", (3, 5), 15),
        "b": Tensor("F32", (), 4),
        "c": Tensor("BF16", (0, 7), 0),
    } == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "no JSON"),
        (b"[]", "no JSON object"),
        (b'{"w": 3}', "no JSON object"),
        (b"\xff\xfe", "no JSON"),
        (b'{"w":' * 100_000, "no JSON"),
        (header(dtype="BF17"), "'BF17' is no type"),
        (header(dtype=None), "None is no type"),
        (header(shape=[-4]), "no shape"),
        (header(shape=[True]), "no shape"),
        (header(shape=[1 << 70]), "no shape"),
        (header(shape="4"), "no shape"),
        (header(data_offsets=[0]), "no offsets"),
        (header(data_offsets=[8, 0]), "takes 8 bytes"),
        (header(data_offsets=[-8, 0]), "no offsets"),
        (header(shape=[1 << 40, 1 << 40]), "its place has 8"),
        (header(data_offsets=[8, 16]), "ends at byte 16"),
    ],
)
def test_a_damaged_header_is_an_input_error(text: bytes, words: str) -> None:
    """Each kind of damage is refused, with the file and what is wrong."""
    with pytest.raises(InputError) as caught:
        parse_header(text, "x.safetensors", 8)

    assert words in caught.value.what
    assert caught.value.where.startswith("x.safetensors")


def test_a_header_of_4_gib_is_not_read() -> None:
    """A length that no header has is refused before anything is read."""
    with pytest.raises(InputError) as caught:
        header_length(struct.pack("<Q", 4 << 30), "x.safetensors")

    assert "4,294,967,296" in caught.value.what


@pytest.mark.parametrize("start", [b"", b"\x01", b"\x00" * 7])
def test_a_file_shorter_than_its_length(start: bytes) -> None:
    """A file that ends before its header says so."""
    with pytest.raises(InputError) as caught:
        header_length(start, "x.safetensors")

    assert f"after {len(start)} bytes" in caught.value.what


def test_a_header_longer_than_the_file() -> None:
    """A header cannot be longer than its file."""
    with pytest.raises(InputError) as caught:
        header_length(struct.pack("<Q", 100), "x.safetensors", 50)

    assert "the file has 50" in caught.value.what


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    """Whatever stands in a header, the answer is tensors or an input error."""
    try:
        found = parse_header(text, "x.safetensors", 100)
    except InputError:
        return

    assert all(isinstance(tensor, Tensor) for tensor in found.values())


@given(
    st.recursive(
        st.one_of(
            st.none(), st.booleans(), st.integers(-(1 << 65), 1 << 65), st.floats(), st.text(max_size=5)
        ),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(["w", "dtype", "shape", "data_offsets"]), inner, max_size=4),
        ),
        max_leaves=12,
    )
)
def test_any_json_is_read_or_refused(value: object) -> None:
    """Whatever JSON stands in a header, nothing else is raised."""
    try:
        found = parse_header(json.dumps(value).encode(), "x.safetensors")
    except InputError:
        return

    assert isinstance(found, dict)


@pytest.mark.parametrize(
    ("places", "data_bytes", "words"),
    [
        ([[0, 8], [0, 8]], 8, "begins at byte 0, the one before it ends at 8"),
        ([[0, 8], [4, 12]], 12, "begins at byte 4, the one before it ends at 8"),
        ([[0, 8], [10, 18]], 18, "begins at byte 10, the one before it ends at 8"),
        ([[8, 16], [16, 24]], 24, "begins at byte 8, the one before it ends at 0"),
        ([[0, 8], [8, 16]], 24, "the tensors end at byte 16, the file's data at 24"),
    ],
)
def test_tensors_lie_one_behind_the_other(places: list[list[int]], data_bytes: int, words: str) -> None:
    """Tensors that overlap, or leave a gap, are damage to the format's own reader."""
    entries = {
        f"w{index}": {"dtype": "BF16", "shape": [4], "data_offsets": place}
        for index, place in enumerate(places)
    }

    with pytest.raises(InputError) as caught:
        parse_header(json.dumps(entries).encode(), "x.safetensors", data_bytes)

    assert words in caught.value.what


def test_of_a_tensor_that_stands_twice_the_first_leaves_a_gap() -> None:
    """The last place of a name counts, as in the format's own reader, and the bytes of the first belong to nothing."""
    entry = '"w": {"dtype": "BF16", "shape": [4], "data_offsets": [%d, %d]}'
    text = "{" + entry % (0, 8) + "," + entry % (8, 16) + "}"

    with pytest.raises(InputError) as caught:
        parse_header(text.encode(), "x.safetensors", 16)

    assert "x.safetensors: w: data_offsets" == caught.value.where
