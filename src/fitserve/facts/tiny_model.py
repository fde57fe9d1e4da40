"""A model directory so small that vLLM starts it in seconds on two CPU cores; there are no weights in it.

It is a Llama of 4 layers with a context of 131,072 tokens. Its KV cache takes 2 x 4 layers x 4 KV heads x 32 x 2 bytes = 2 KiB a
token in bfloat16, so one sequence of the whole context needs 256 MiB: large enough to refuse, small enough to serve.
Serve it with ``--load-format dummy``: vLLM draws the weights at random.
"""

import json
import string
from pathlib import Path
from typing import Any

BOS_TOKEN = "<|begin|>"  # noqa: S105 - a token of a vocabulary
EOS_TOKEN = "<|end|>"  # noqa: S105 - a token of a vocabulary
VOCAB_SIZE = 1024
MAX_MODEL_LEN = 131_072
NUM_LAYERS = 4
NUM_KV_HEADS = 4
HEAD_DIM = 32
KV_CACHE_BYTES_PER_TOKEN = 2 * NUM_LAYERS * NUM_KV_HEADS * HEAD_DIM * 2

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def build_tiny_model(folder: Path) -> Path:
    """Write the model's four files and return the folder; the same bytes each time.

    Args:
        folder: is made where it is missing.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in model_files().items():
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def model_files() -> dict[str, dict[str, Any]]:
    """Each file's name and JSON.

    **Source**: the names and keys that Transformers 5.19 reads for a Llama checkpoint with a fast tokenizer.
    """
    ids = vocabulary()
    return {
        "config.json": _config(ids),
        "generation_config.json": {"bos_token_id": ids[BOS_TOKEN], "eos_token_id": ids[EOS_TOKEN]},
        "tokenizer.json": _tokenizer(ids),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": BOS_TOKEN,
            "eos_token": EOS_TOKEN,
            "model_max_length": MAX_MODEL_LEN,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    }


def vocabulary() -> dict[str, int]:
    """Each token and its id: the 256 bytes, the pairs of the merges, then special tokens up to ``VOCAB_SIZE``."""
    pairs = [left + right for left, right in _merges()]
    special = special_tokens(VOCAB_SIZE - 256 - len(pairs))
    return {token: number for number, token in enumerate([*byte_symbols(), *pairs, *special])}


def special_tokens(count: int) -> list[str]:
    """The tokens that no text is split into; the unnamed ones fill the vocabulary, so that each id decodes."""
    named = [BOS_TOKEN, EOS_TOKEN, "<|system|>", "<|user|>", "<|assistant|>"]
    return [*named, *(f"<|reserved_{number}|>" for number in range(count - len(named)))]


def byte_symbols() -> list[str]:
    """The printable character that stands for each byte, in the order of the bytes.

    Printable bytes stand for themselves, the others for the characters from U+0100 on.

    **Source**: GPT-2's byte-level BPE, which the ``ByteLevel`` parts of the tokenizers library follow.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    shifted = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(shifted)) for byte in range(256)]


def _merges() -> list[tuple[str, str]]:
    """A space with a letter or digit, then each pair of small letters: about half a token a character."""
    space = byte_symbols()[ord(" ")]
    letters = string.ascii_lowercase
    return [
        *((space, character) for character in string.ascii_letters + string.digits),
        *((left, right) for left in letters for right in letters),
    ]


def _config(ids: dict[str, int]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": NUM_KV_HEADS,
        "num_key_value_heads": NUM_KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "max_position_embeddings": MAX_MODEL_LEN,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": ids[BOS_TOKEN],
        "eos_token_id": ids[EOS_TOKEN],
    }


def _tokenizer(ids: dict[str, int]) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = [token for token in ids if token.startswith("<|") and token.endswith("|>")]
    ordinary = {token: number for token, number in ids.items() if token not in special}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": ids[token],
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token in special
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": _begin_each_text(ids[BOS_TOKEN]),
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": ordinary,
            "merges": [list(pair) for pair in _merges()],
        },
    }


def _begin_each_text(bos_id: int) -> dict[str, Any]:
    begin = {"SpecialToken": {"id": BOS_TOKEN, "type_id": 0}}
    text = [{"Sequence": {"id": name, "type_id": 0}} for name in ("A", "B")]
    return {
        "type": "TemplateProcessing",
        "single": [begin, text[0]],
        "pair": [begin, *text],
        "special_tokens": {BOS_TOKEN: {"id": BOS_TOKEN, "ids": [bos_id], "tokens": [BOS_TOKEN]}},
    }
