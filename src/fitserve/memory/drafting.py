"""Speculative decoding as the settings describe it: which method drafts, how many tokens, and with which model.

Source: ``SpeculativeConfig.__post_init__`` of vLLM 0.32 ``config/speculative.py``, and the ``--speculative-model`` options of releases
before 0.9.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from fitserve.errors import InputError, UsageError
from fitserve.facts.checkpoint import Checkpoint
from fitserve.memory.options import Drafting

_WITHOUT_MODEL = ("ngram", "ngram_gpu", "suffix")
_NAMED = ("eagle", "eagle3", "dflash", "dspark", "medusa", "mlp_speculator")
_MOST_TOKENS = 64
_SUFFIX_DEPTH = 24
"""``suffix_decoding_max_tree_depth``."""

_OWN = {"embed_tokens": "embed_tokens", "lm_head": "lm_head"}
_SHORT = {"spec_method": "method", "spec_model": "model", "spec_tokens": "num_speculative_tokens"}
_OLD = {
    "speculative_model": "model",
    "num_speculative_tokens": "num_speculative_tokens",
    "speculative_draft_tensor_parallel_size": "draft_tensor_parallel_size",
}


def drafting(given: Mapping[str, Any]) -> Drafting | None:
    """How tokens are drafted; None where they are not.

    Raises:
        UsageError: the settings are no object, or the number of tokens is absurd.
    """
    asked = _asked(given)
    if not asked:
        return None
    model = asked.get("model")
    model = model if isinstance(model, str) and model else None
    method = asked.get("method")
    if model in ("ngram", "[ngram]") or method == "[ngram]":
        method, model = "ngram", None
    if isinstance(method, str) and method.endswith("_mtp"):
        method = "mtp"
    if method == "suffix" and asked.get("num_speculative_tokens") is None:
        asked["num_speculative_tokens"] = asked.get("suffix_decoding_max_tree_depth", _SUFFIX_DEPTH)
    if method in _WITHOUT_MODEL:
        return Drafting(method=str(method), tokens=_tokens(asked, None))
    if model is None:
        return Drafting(method=str(method or ""), tokens=_tokens(asked, None))
    found = _read(model)
    if isinstance(found, str):
        return Drafting(
            method=str(method or "draft_model"),
            tokens=_tokens({"num_speculative_tokens": 1, **asked}, None),
            model=model,
            missing=found,
        )
    return Drafting(
        method=_method(method, model, found),
        tokens=_tokens(asked, found),
        model=model,
        config=found.config,
        owns=_owned(found),
        quantization=asked.get("quantization"),
    )


def _asked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings by the names of ``--speculative-config``."""
    found: Any = given.get("speculative_config")
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except ValueError:
            raise UsageError("speculative_config is no JSON object", where=found) from None
    if found is not None and not isinstance(found, Mapping):
        raise UsageError("speculative_config is no object", hint="give JSON with method, model and so on")
    asked = dict(found or {})
    for names in (_SHORT, _OLD):
        asked |= {new: given[old] for old, new in names.items() if given.get(old) is not None}
    return asked


def _tokens(asked: Mapping[str, Any], draft: Checkpoint | None) -> int:
    """``num_speculative_tokens``; where it is not given, what the drafting model says.

    Raises:
        UsageError: neither says it, or it cannot be.
    """
    count = asked.get("num_speculative_tokens")
    if count is None and draft is not None:
        text = draft.config.text
        names = ("num_lookahead_tokens", "num_nextn_predict_layers", "n_predict")
        count = next((text[name] for name in names if text.get(name)), None)
    if count is None:
        raise UsageError(
            "num_speculative_tokens is missing",
            where="--speculative-config",
            hint=f"give how many tokens are drafted, 1 to {_MOST_TOKENS}",
        )
    if isinstance(count, bool) or not isinstance(count, int) or not 0 < count <= _MOST_TOKENS:
        raise UsageError(f"num_speculative_tokens {count!r} cannot be", hint=f"give 1 to {_MOST_TOKENS}")
    return count


def _method(named: object, model: str, draft: Checkpoint) -> str:
    """The method: as named, else by the model's name or its ``model_type``."""
    lowered = model.lower()
    kind = str(draft.config.data.get("model_type", ""))
    if named in _NAMED:
        return str(named)
    if "eagle-" in lowered:
        return "eagle"
    if "eagle3" in lowered:
        return "eagle3"
    if kind in ("medusa", "mlp_speculator"):
        return kind
    return "mtp" if named == "mtp" or kind.endswith("_mtp") else "draft_model"


def _owned(draft: Checkpoint) -> tuple[str, ...] | None:
    """Which of embeddings and output layer its files hold; None where their headers are not at hand."""
    if not draft.tensors:
        return None
    return tuple(part for part in _OWN if any(part in name for name in draft.tensors))


@lru_cache(maxsize=16)
def _read(model: str) -> Checkpoint | str:
    """The drafting model, from a folder of this machine; else why it is not known."""
    from fitserve.facts.checkpoint import read_checkpoint

    if not Path(model).expanduser().exists():
        return f"the drafting model {model} is not on this machine: give its directory"
    try:
        return read_checkpoint(model)
    except InputError as error:
        return f"the drafting model {model} is not readable: {error.what}"
