"""The tiny model's files, without an engine."""

import json
import subprocess
from pathlib import Path

import pytest

from fitserve.facts.tiny_model import (
    KV_CACHE_BYTES_PER_TOKEN,
    MAX_MODEL_LEN,
    VOCAB_SIZE,
    build_tiny_model,
    byte_symbols,
    vocabulary,
)
from fitserve.units import MIB


def test_the_files_are_the_same_each_time(tmp_path: Path) -> None:
    """Two builds differ in no byte, also over an older one."""
    once, twice = build_tiny_model(tmp_path / "a"), build_tiny_model(tmp_path / "b")
    build_tiny_model(twice)
    contents = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in (once, twice)]

    assert contents[0] == contents[1]
    assert {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} == contents[
        0
    ].keys()


def test_every_id_is_a_token() -> None:
    """The vocabulary has each id from 0 on once: whatever the model draws can be decoded."""
    assert list(range(VOCAB_SIZE)) == list(vocabulary().values())


def test_every_byte_has_its_symbol() -> None:
    """256 bytes, 256 printable symbols, and the printable ASCII characters stand for themselves."""
    symbols = byte_symbols()

    assert 256 == len(set(symbols))
    assert all(symbol.isprintable() for symbol in symbols)
    assert "A" == symbols[ord("A")]


def test_every_merge_makes_a_token() -> None:
    """What two symbols are merged into is in the vocabulary, as the tokenizer demands."""
    tokenizer = json.loads(json.dumps(_files()["tokenizer.json"]))
    tokens = tokenizer["model"]["vocab"]

    assert [] == [pair for pair in tokenizer["model"]["merges"] if "".join(pair) not in tokens]


def test_one_sequence_of_the_whole_context_takes_256_mib() -> None:
    """The figure that the demo's first launch is refused for follows from the model's config."""
    config = _files()["config.json"]
    computed = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"] * 2

    assert computed == KV_CACHE_BYTES_PER_TOKEN
    assert 256 * MIB == computed * MAX_MODEL_LEN == computed * config["max_position_embeddings"]


def _files() -> dict[str, dict]:  # type: ignore[type-arg]
    from fitserve.facts.tiny_model import model_files

    return model_files()


TRANSFORMERS = """
import json, sys
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
text = "Hello, w\\u00f6rld 42!\\n\\U0001F600"
ids = tokenizer.encode(text)
chat = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True)
print(json.dumps({
    "length": len(tokenizer),
    "same": tokenizer.decode(ids, skip_special_tokens=True) == text,
    "first": ids[0] == tokenizer.bos_token_id,
    "silent": [number for number in range(len(tokenizer)) if not tokenizer.decode([number])],
    "chat": chat,
}))
"""


@pytest.mark.live
def test_the_engine_s_own_tokenizer_reads_it(engine_python: Path, tiny_model: Path) -> None:
    """Any text comes back from its tokens, each id has a text, and a chat is put into the template."""
    told = subprocess.run(
        [engine_python, "-c", TRANSFORMERS, tiny_model], capture_output=True, text=True, check=True
    ).stdout
    found = json.loads(told)

    assert {
        "length": VOCAB_SIZE,
        "same": True,
        "first": True,
        "silent": [],
        "chat": "<|begin|><|user|>hi<|end|><|assistant|>",
    } == found
