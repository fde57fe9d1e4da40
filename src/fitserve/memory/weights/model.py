"""What a family needs to count one rank: the configuration, the rank's place, and the inventory it fills."""

from collections.abc import Callable, Hashable
from typing import Any

from fitserve.errors import InputError
from fitserve.facts.model_config import ModelConfig, read_integer
from fitserve.memory.history import release
from fitserve.memory.options import EngineOptions
from fitserve.memory.weights.inventory import Inventory
from fitserve.memory.weights.shapes import NotModelledError, stage_layers

_MOST_LAYERS = 10_000
"""No model has more layers; what claims so is damage."""

_LAYER_COUNTS = ("num_hidden_layers", "n_layer", "num_layers", "depth", "encoder_layers", "decoder_layers")


class Build:
    """One rank's model while it is counted.

    Attributes:
        config: the checkpoint's configuration.
        text: the language model's part of it.
        options: vLLM's settings.
        inventory: what the rank holds so far.
        stage: the rank's pipeline stage.
        first: it is the first stage.
        last: it is the last stage.
    """

    def __init__(self, config: ModelConfig, options: EngineOptions, inventory: Inventory, stage: int) -> None:
        self.config = config
        self.text = config.text
        self.options = options
        self.inventory = inventory
        self.stage = stage
        self.first = stage == 0
        self.last = stage == options.pipeline_parallel_size - 1

    def integer(self, *names: str, default: int | None = None) -> int:
        """A whole number of the language model's part."""
        return self.of(self.text, *names, default=default)

    def flag(self, *names: str, default: bool = False) -> bool:
        """A yes or no of the language model's part."""
        for name in names:
            value = self.text.get(name)
            if isinstance(value, bool):
                return value
        return default

    def at_least(self, version: str) -> bool:
        """Whether vLLM's release is that one or newer."""
        return release(self.options.vllm_version) >= release(version)

    @property
    def shares_sequences(self) -> bool:
        """Ranks share out a batch's tokens before experts, and hold the experts that every token passes whole.

        So they do with expert parallelism over tensor and data parallel ranks.

        Source: ``use_sequence_parallel_moe`` in ``config/parallel.py`` of vLLM 0.12 to 0.32, with the default way to exchange tokens.
        """
        options = self.options
        many = options.tensor_parallel_size > 1 and options.data_parallel_size > 1
        return options.enable_expert_parallel and many and self.at_least("0.11.0")

    def part(self, name: str) -> dict[str, Any]:
        """A nested part of the whole configuration, such as ``vision_config``.

        Raises:
            NotModelledError: it is not there.
        """
        found = self.config.data.get(name)
        if not isinstance(found, dict):
            raise NotModelledError(f"a configuration without {name}")
        return found

    def of(self, part: dict[str, Any], *names: str, default: int | None = None) -> int:
        """A whole number of a part of the configuration.

        Raises:
            InputError: it is missing, no count, or a number of layers that no model has.
        """
        value = read_integer(part, names, self.config.source, default)
        if value > _MOST_LAYERS and any(word in name for name in names for word in _LAYER_COUNTS):
            raise InputError(
                f"{value:,} layers cannot be", where=f"{self.config.source}: {' or '.join(names)}"
            )
        return value

    @property
    def hidden(self) -> int:
        """The width of the model."""
        return self.integer("hidden_size", "n_embd", "d_model")

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.integer("num_attention_heads", "n_head", "n_heads")

    @property
    def kv_heads(self) -> int:
        """Key and value heads."""
        return self.integer("num_key_value_heads", default=self.heads)

    @property
    def head_dim(self) -> int:
        """Numbers of one head."""
        return self.integer("head_dim", default=self.hidden // max(1, self.heads))

    @property
    def vocabulary(self) -> int:
        """Rows of the embeddings before padding."""
        return self.integer("vocab_size", "padded_vocab_size")

    @property
    def tied(self) -> bool:
        """Embeddings and output layer are one."""
        for place in (self.text, self.config.data):
            value = place.get("tie_word_embeddings")
            if isinstance(value, bool):
                return value
        return False

    def stack(
        self,
        count: int,
        add: Callable[[int], None],
        kind: Callable[[int], Hashable] = lambda _index: None,
    ) -> None:
        """Name this stage's layers of the language model.

        Raises:
            NotModelledError: a stage has none.
        """
        stages = self.options.pipeline_parallel_size
        if stages > count:
            raise NotModelledError(f"{count} layers on {stages:,} pipeline stages leave one without any")
        layers = stage_layers(count, stages)[self.stage]
        self.inventory.layers(layers, add, kind)

    def ends(
        self,
        *,
        norm: int | None = None,
        head: str = "lm_head",
        tied: bool | None = None,
        head_bias: bool = False,
        padding: int = 64,
        width: int | None = None,
        everywhere: str = "",
        headless: bool = False,
    ) -> None:
        """The embeddings on the first stage, the last norm and the output layer on the last.

        Tied embeddings stand on the first and on the last stage.

        Args:
            norm: numbers of the last norm; the width where not given.
            head: vLLM's name of the output layer.
            tied: embeddings and output layer are one.
            head_bias: the output layer has a bias.
            padding: the vocabulary's padding.
            width: columns of the embeddings, where they are not the width.
            everywhere: what every stage holds, of ``embeddings norm head``.
            headless: there is no output layer.
        """
        one = self.tied if tied is None else tied
        columns = self.hidden if width is None else width
        inventory = self.inventory
        if self.first or "embeddings" in everywhere or (one and self.last):
            inventory.embedding(self.vocabulary, columns, padding=padding)
        if self.last or "norm" in everywhere:
            inventory.numbers(self.hidden if norm is None else norm)
        if headless or not (self.last or "head" in everywhere):
            return
        if one:
            inventory.tied_head(head, self.vocabulary, columns, padding=padding)
        else:
            inventory.head(head, self.vocabulary, columns, bias=head_bias, padding=padding)
