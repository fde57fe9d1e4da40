"""Write a tiny model with random weights as one GGUF file: ``make_gguf.py FILE``.

A llama of 2 layers with 512 tokens of vocabulary and context. Source: the GGUF format, version 3, and the tensor names of
llama.cpp's ``llama`` architecture.
"""

import random
import struct
import sys
from pathlib import Path

CONTEXT = 512
VOCABULARY = 512
WIDTH, FEED_FORWARD, LAYERS, HEADS = 64, 128, 2, 4
ALIGNMENT = 32
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6


def text(value: str) -> bytes:
    """A string with its length."""
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def plain(kind: int, value: float | str) -> bytes:
    """One value without its type."""
    if kind == STRING:
        return text(str(value))
    return struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}[kind], value)


def field(key: str, kind: int, value: float | str) -> bytes:
    """One key and its value."""
    return text(key) + struct.pack("<I", kind) + plain(kind, value)


def array(key: str, kind: int, values: list) -> bytes:
    """One key and a list."""
    head = text(key) + struct.pack("<IIQ", ARRAY, kind, len(values))
    return head + b"".join(plain(kind, value) for value in values)


def vocabulary() -> list[tuple[str, float, int]]:
    """Pieces, their scores and their kinds, as SentencePiece has them: special ones, bytes, and short words."""
    special = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
    octets = [(f"<0x{octet:02X}>", 0.0, BYTE) for octet in range(256)]
    letters = "aeiourstnlmdp"
    words = [f"▁{first}{second}" for first in letters for second in letters] + [f"▁{one}" for one in letters]
    words += [first + second for first in letters for second in letters]
    taken = words[: VOCABULARY - len(special) - len(octets)]
    return special + octets + [(word, -float(rank), NORMAL) for rank, word in enumerate(taken)]


def metadata() -> list[bytes]:
    """Every key of the header."""
    pieces = vocabulary()
    numbers = {
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "block_count": LAYERS,
        "feed_forward_length": FEED_FORWARD,
        "rope.dimension_count": WIDTH // HEADS,
        "attention.head_count": HEADS,
        "attention.head_count_kv": HEADS,
        "vocab_size": len(pieces),
    }
    return [
        field("general.architecture", STRING, "llama"),
        field("general.name", STRING, "tiny"),
        field("general.alignment", UINT32, ALIGNMENT),
        *(field(f"llama.{key}", UINT32, value) for key, value in numbers.items()),
        field("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5),
        field("tokenizer.ggml.model", STRING, "llama"),
        array("tokenizer.ggml.tokens", STRING, [piece for piece, _, _ in pieces]),
        array("tokenizer.ggml.scores", FLOAT32, [score for _, score, _ in pieces]),
        array("tokenizer.ggml.token_type", INT32, [kind for _, _, kind in pieces]),
        field("tokenizer.ggml.bos_token_id", UINT32, 1),
        field("tokenizer.ggml.eos_token_id", UINT32, 2),
        field("tokenizer.ggml.unknown_token_id", UINT32, 0),
        field("tokenizer.ggml.add_bos_token", BOOL, 1),
    ]


def shapes() -> dict[str, tuple[int, ...]]:
    """Each tensor and its dimensions, the innermost first."""
    found: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (WIDTH, len(vocabulary())),
        "output_norm.weight": (WIDTH,),
        "output.weight": (WIDTH, len(vocabulary())),
    }
    for layer in range(LAYERS):
        found |= {f"blk.{layer}.{name}.weight": (WIDTH,) for name in ("attn_norm", "ffn_norm")}
        found |= {f"blk.{layer}.attn_{name}.weight": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
        found |= {f"blk.{layer}.ffn_{name}.weight": (WIDTH, FEED_FORWARD) for name in ("gate", "up")}
        found[f"blk.{layer}.ffn_down.weight"] = (FEED_FORWARD, WIDTH)
    return found


def padded(raw: bytes) -> bytes:
    """Filled up to the alignment."""
    return raw + bytes(-len(raw) % ALIGNMENT)


def main(path: Path) -> None:
    """Write the file."""
    dice = random.Random(1)
    infos, blobs, offset = [], [], 0
    for name, shape in shapes().items():
        size = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [1.0] * size if len(shape) == 1 else [dice.gauss(0, 0.1) for _ in range(size)]
        blob = padded(struct.pack(f"<{size}f", *values))
        dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        infos.append(text(name) + dimensions + struct.pack("<IQ", 0, offset))
        blobs.append(blob)
        offset += len(blob)
    keys = metadata()
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys)) + b"".join(keys) + b"".join(infos)
    path.write_bytes(padded(head) + b"".join(blobs))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
