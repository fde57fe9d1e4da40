"""What a ``config.json`` may say: the kind and the range of each key that decides memory, wherever it stands.

A value that vLLM could not build a model of is damage, and is named with its file and key.

Source: the annotations of ``PretrainedConfig`` in transformers 4.57, the assertions of vLLM 0.32
``model_executor/layers/linear.py`` and ``model_executor/models/llama.py``; the upper ends are far above every published model.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fitserve.errors import InputError

_DEEPEST = 16
"""Levels of nesting; published configurations have at most six."""

_MOST_KEYS = 200_000
_WIDTH = 1 << 20
_POSITION = 1 << 30
_LENGTH = 1 << 40
_FACTOR = 1 << 16

_LAYERS = "num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers depth"
_HEADS = "num_attention_heads n_head n_heads num_heads decoder_attention_heads encoder_attention_heads"
_KV_HEADS = "num_key_value_heads num_kv_heads n_head_kv multi_query_group_num num_attention_groups kv_n_heads"
_WIDTHS = (
    "hidden_size n_embd d_model n_embed head_dim qk_nope_head_dim v_head_dim global_head_dim swa_head_dim embed_dim "
    "word_embed_proj_dim"
)
_VOCABULARY = "vocab_size padded_vocab_size"
_OPTIONAL_WIDTHS = (
    "intermediate_size ffn_dim n_inner ffn_hidden_size moe_intermediate_size shared_expert_intermediate_size kv_lora_rank "
    "q_lora_rank qk_rope_head_dim mamba_d_state mamba_d_conv mamba_d_head mamba_n_heads mamba_d_ssm ssm_state_size "
    "state_size conv_kernel linear_conv_kernel_dim linear_key_head_dim linear_value_head_dim linear_num_key_heads "
    "linear_num_value_heads n_groups mamba_n_groups mamba_head_dim mamba_num_heads index_head_dim index_n_heads patch_size "
    "num_channels in_channels in_chans spatial_merge_size temporal_patch_size out_hidden_size image_size"
)
_EXPERTS = (
    "num_experts num_local_experts n_routed_experts n_shared_experts num_experts_per_tok moe_num_experts"
)
_POSITIONS = "max_position_embeddings n_positions max_seq_len seq_length max_target_positions original_max_position_embeddings"
_LENGTHS = "sliding_window attention_chunk_size"
_NUMBERS = "factor mlp_ratio block_ffn_dim_multiplier downsample_ratio"
_FLAGS = "tie_word_embeddings use_sliding_window attention_bias mlp_bias qkv_bias"
_NAMES = "model_type hidden_act hidden_activation activation_function quant_method"
_OBJECTS = (
    "quantization_config compression_config rope_scaling rope_parameters text_config llm_config language_config "
    "thinker_config vision_config audio_config attn_config ffn_config linear_attn_config sparse_attention_config"
)
_LISTS_OF_LAYERS = (
    "mlp_only_layers moe_layers attn_layer_indices hybrid_layer_ids no_rope_layers deepstack_visual_indexes"
)
_LISTS_OF_NAMES = "architectures layer_types layers_block_type mlp_layer_types"
_DTYPES = frozenset(
    [
        "auto",
        "half",
        "float",
        "double",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float4_e2m1fn_x2",
        "int8",
        "uint8",
        "int16",
        "int32",
        "int64",
    ]
)
_QUANTISATIONS = ("quantization_config", "compression_config")
_OPAQUE = frozenset(["auto_map", "id2label", "label2id", "task_specific_params"])
"""Objects whose keys are not a model's shape."""

Check = Callable[[Any], str]
"""What is wrong with a value; empty where nothing is."""


def _count(least: int, most: int) -> Check:
    """A whole number, or a list of one for each layer."""

    def check(value: Any) -> str:
        if value == []:
            return "lists nothing"
        for one in value if isinstance(value, list) else (value,):
            if one is None:
                continue
            if isinstance(one, bool) or not isinstance(one, int | float) or one != one // 1:
                return "is no whole number"
            if not least <= one <= most:
                return f"is not between {least:,} and {most:,}"
        return ""

    return check


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "is no number"
    return "" if 0 < value <= _FACTOR else f"is not above 0 and at most {_FACTOR:,}"


def _share(value: Any) -> str:
    """A number from 0 to 1; one for each kind of layer in an object or a list."""
    if isinstance(value, dict | list):
        return ""
    is_right = not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value <= 1
    return "" if is_right else "is no share from 0 to 1"


def _base(value: Any) -> str:
    """A number above 0; one for each kind of layer in an object or a list."""
    if isinstance(value, dict | list):
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "is no number"
    return "" if math.isfinite(value) and value > 0 else "is no number above 0"


def _flag(value: Any) -> str:
    return "" if isinstance(value, bool) else "is neither true nor false"


def _name(value: Any) -> str:
    return "" if isinstance(value, str) else "is no name"


def _dtype(value: Any) -> str:
    known = isinstance(value, str) and value.removeprefix("torch.") in _DTYPES
    return "" if known or isinstance(value, dict) else "is no type of numbers that torch has"


def _object(value: Any) -> str:
    return "" if isinstance(value, dict) else "is no JSON object"


def _names(value: Any) -> str:
    is_right = isinstance(value, list) and all(isinstance(one, str) for one in value)
    return "" if is_right else "is no list of names"


def _layers(value: Any) -> str:
    is_right = isinstance(value, list) and all(
        isinstance(one, int) and not isinstance(one, bool) and 0 <= one <= _WIDTH for one in value
    )
    return "" if is_right else "is no list of layers"


def _block(value: Any) -> str:
    is_right = isinstance(value, list) and len(value) == 2 and not _layers(value) and all(value)
    return "" if is_right else "is no pair of whole numbers above 0"


def _by_name(*rows: tuple[str, Check]) -> dict[str, Check]:
    return {name: check for names, check in rows for name in names.split()}


_CHECKS = _by_name(
    (_LAYERS, _count(1, 1000)),
    (f"{_HEADS} {_KV_HEADS}", _count(1, 1 << 14)),
    (_WIDTHS, _count(1, _WIDTH)),
    (_VOCABULARY, _count(1, 1 << 24)),
    (_OPTIONAL_WIDTHS, _count(0, _WIDTH)),
    (_EXPERTS, _count(0, 1 << 16)),
    (_POSITIONS, _count(1, _POSITION)),
    (_LENGTHS, _count(-1, _LENGTH)),
    (_NUMBERS, _number),
    ("rope_theta", _base),
    ("partial_rotary_factor", _share),
    (_FLAGS, _flag),
    (_NAMES, _name),
    ("torch_dtype dtype", _dtype),
    (_OBJECTS, _object),
    (_LISTS_OF_NAMES, _names),
    (_LISTS_OF_LAYERS, _layers),
)
_QUANTISED = _by_name(
    ("quant_method method", _name),
    ("bits w_bit num_bits", _count(1, 64)),
    ("group_size q_group_size", _count(-1, _WIDTH)),
    ("weight_block_size", _block),
)
"""Within a quantisation, where ``dtype`` and its like are names of the method's own."""


def check_config(data: Mapping[str, Any], text: Mapping[str, Any], source: str) -> None:
    """Look at every known key of a configuration; null says nothing, and other keys are not judged.

    Args:
        data: the whole configuration.
        text: the language model's part of it.
        source: the file, for messages.

    Raises:
        InputError: a value cannot be, or two contradict each other.
    """
    for number, (path, name, value, checks) in enumerate(_walk(data, "", source, _CHECKS)):
        if number > _MOST_KEYS:
            raise InputError(f"it has more than {_MOST_KEYS:,} keys", where=source)
        check = checks.get(name)
        wrong = check(value) if check is not None and value is not None else ""
        if wrong:
            raise _refused(f"{_short(value)} {wrong}", source, path)
    _check_heads(text, source)
    _check_layers(text, source)


def _walk(
    data: Mapping[str, Any], prefix: str, source: str, checks: dict[str, Check]
) -> Iterator[tuple[str, str, Any, dict[str, Check]]]:
    """Every key with its path and the checks of its place, through the objects that describe a part of the model."""
    if prefix.count(".") > _DEEPEST:
        raise _refused(f"objects are nested deeper than {_DEEPEST} levels", source, _short(prefix))
    for name, value in data.items():
        yield prefix + name, name, value, checks
        if isinstance(value, dict) and name not in _OPAQUE:
            inner = _QUANTISED if name in _QUANTISATIONS else checks
            yield from _walk(value, f"{prefix}{name.replace('.', '_')}.", source, inner)


def _check_heads(text: Mapping[str, Any], source: str) -> None:
    """Query heads share KV heads evenly, and a head has at least one number.

    Source: ``assert self.total_num_heads % self.total_num_kv_heads == 0`` and its like in ``models/*.py``, ``assert num_heads %
    num_kv_heads == 0`` in ``attention/layer.py``, vLLM 0.6 to 0.32.
    """
    heads = _first(text, _HEADS)
    if heads is None:
        return
    for name in _KV_HEADS.split():
        shared = text.get(name)
        if isinstance(shared, int) and heads[1] % shared:
            what = f"{heads[1]} attention heads do not share {shared} KV heads evenly"
            raise _refused(what, source, name)
    hidden = _first(text, "hidden_size n_embd d_model n_embed")
    if hidden is not None and text.get("head_dim") is None and hidden[1] < heads[1]:
        raise _refused(f"{hidden[1]} is less than one for each of {heads[1]} heads", source, hidden[0])


def _check_layers(text: Mapping[str, Any], source: str) -> None:
    """A list of layers has an entry for each; those of draft layers may follow.

    Source: ``layer_type_validation`` in ``configuration_utils.py`` of transformers 4.57.
    """
    layers = _first(text, _LAYERS)
    for name in ("layer_types", "layers_block_type"):
        listed = text.get(name)
        if layers is None or not isinstance(listed, list):
            continue
        drafts = sum(
            value
            for key in ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
            if isinstance(value := text.get(key), int) and value > 0
        )
        if not layers[1] <= len(listed) <= layers[1] + drafts:
            raise _refused(f"it lists {len(listed)} layers, {layers[0]} is {layers[1]}", source, name)


def _first(text: Mapping[str, Any], names: str) -> tuple[str, int] | None:
    """The first of these keys that has a whole number."""
    for name in names.split():
        value = text.get(name)
        if isinstance(value, int | float):
            return name, int(value)
    return None


def _short(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 80:
        return f"{value:,}"
    text = value if isinstance(value, str) and value.endswith(".") else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refused(what: str, source: str, key: str) -> InputError:
    return InputError(
        what, where=f"{source}: {key}", hint="the file is damaged, or was written by hand: download it again"
    )
