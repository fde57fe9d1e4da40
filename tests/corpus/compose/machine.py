"""Invented models and real device sizes, with the arithmetic that the logs must obey."""

import msgspec

GIB = 1 << 30

DEVICES = {  # usable GiB as cudaMemGetInfo gives them
    "T4": 14.58, "V100-16": 15.77, "V100-32": 31.73, "RTX4080": 15.58, "L4": 22.03, "A10": 22.06, "RTX4090": 23.53, "RTX5090": 31.36,
    "A40": 44.45, "L40S": 44.39, "A6000": 47.41, "A100-40": 39.38, "A100-80": 79.25, "H100": 79.18, "H200": 139.80, "MI300X": 191.69,
}  # fmt: skip


class Model(msgspec.Struct, frozen=True):
    """What a start-up log shows of a model. Sizes are of the whole model in its own type."""

    name: str
    architecture: str
    weights_gib: float
    layers: int
    kv_heads: int
    head_size: int
    context: int
    shards: int
    file: str

    def token_bytes(self, ranks: int = 1, stages: int = 1) -> int:
        """KV bytes of one token on one rank (two bytes an element)."""
        return 2 * 2 * (self.layers // stages) * max(1, self.kv_heads // ranks) * self.head_size


BRISA_8B = Model("brisa-ai/Brisa-8B-Chat", "LlamaForCausalLM", 14.96, 32, 8, 128, 131072, 4, "llama.py")
TARN_32B = Model("tarn-labs/Tarn-32B-Instruct", "Qwen2ForCausalLM", 61.03, 64, 8, 128, 32768, 14, "qwen2.py")
TARN_70B = Model("tarn-labs/Tarn-70B", "LlamaForCausalLM", 131.46, 80, 8, 128, 131072, 30, "llama.py")
KESTREL_2B = Model("kestrelml/Kestrel-1.8B", "Qwen2ForCausalLM", 3.36, 28, 2, 128, 32768, 1, "qwen2.py")
KESTREL_7B = Model(
    "kestrelml/Kestrel-7B-Instruct", "Qwen2ForCausalLM", 14.25, 28, 4, 128, 32768, 4, "qwen2.py"
)
MIRADOR_7B = Model("mirador/mirador-7b-hf", "LlamaForCausalLM", 12.55, 32, 32, 128, 4096, 2, "llama.py")
MIRADOR_13B = Model("mirador/mirador-13b-chat", "LlamaForCausalLM", 24.26, 40, 40, 128, 4096, 3, "llama.py")
SOLANO_24B = Model("solano/Solano-24B-2506", "MistralForCausalLM", 43.91, 40, 8, 128, 131072, 10, "llama.py")
ONDINE_VL = Model(
    "ondine/Ondine-VL-7B", "Qwen2_5_VLForConditionalGeneration", 15.63, 28, 4, 128, 128000, 5, "qwen2_5_vl.py"
)
COBALT_MOE = Model(
    "cobalt-ml/Cobalt-30B-A3B", "Qwen3MoeForCausalLM", 56.93, 48, 4, 128, 40960, 16, "qwen3_moe.py"
)
COBALT_H = Model(
    "cobalt-ml/Cobalt-Next-80B-A3B", "Qwen3NextForCausalLM", 148.7, 12, 2, 256, 262144, 41, "qwen3_next.py"
)


class Budget(msgspec.Struct, frozen=True):
    """The memory of one rank, GiB: requested = total x utilization; KV = requested - the rest."""

    total: float
    utilization: float
    weights: float
    activation: float
    non_torch: float
    graphs: float = 0.0

    @property
    def requested(self) -> float:
        """GiB that this instance may use."""
        return self.total * self.utilization

    @property
    def kv_bytes(self) -> int:
        """Bytes for the KV cache; may be negative."""
        rest = self.weights + self.activation + self.non_torch + self.graphs
        return int((self.requested - rest) * GIB)


def gib(size_bytes: float) -> str:
    """As vLLM's format_gib (0.14+): rounded to two decimals, no padding."""
    return str(round(size_bytes / GIB, 2))


def fit_tokens(kv_bytes: int, token_bytes: int, *, null_block: bool = False, block: int = 16) -> int:
    """The longest context one sequence can have: whole blocks; 0.29+ keeps one block back."""
    return (kv_bytes // (token_bytes * block) - (1 if null_block else 0)) * block


def torch_size(mebibytes: float) -> str:
    """As torch prints sizes in an out-of-memory text."""
    return f"{mebibytes / 1024:.2f} GiB" if mebibytes >= 1024 else f"{mebibytes:.2f} MiB"
