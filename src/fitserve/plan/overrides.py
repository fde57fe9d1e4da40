"""A configuration with what the launch overrides in it: ``--hf-overrides`` and ``--rope-scaling``."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from fitserve.errors import InputError, UsageError
from fitserve.facts.checkpoint import Checkpoint
from fitserve.facts.model_config import parse_config

_OPTIONS = ("rope_scaling", "rope_theta", "hf_overrides")


def overridden(checkpoint: Checkpoint, given: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint with its configuration as vLLM sees it.

    An error in what is overridden names the option beside the file.

    Source: ``hf_overrides`` and ``rope_scaling`` in ``config/model.py`` of vLLM 0.6.4 to 0.33.0: keys are set one by one,
    nested objects are merged.

    Args:
        checkpoint: the model.
        given: the settings of the launch by vLLM's names.

    Raises:
        UsageError: what is overridden cannot be.
    """
    changes: dict[str, Any] = {}
    for name in _OPTIONS[:2]:
        if given.get(name) is not None:
            changes[name] = given[name]
    overrides = given.get("hf_overrides")
    if overrides is not None and not isinstance(overrides, Mapping):
        raise UsageError(f"{overrides!r} is no JSON object", where="--hf-overrides")
    changes |= overrides or {}
    if not changes:
        return checkpoint
    config = checkpoint.config
    changed = ", ".join(f"--{name.replace('_', '-')}" for name in _OPTIONS if given.get(name) is not None)
    text = json.dumps(_merged(config.data, changes)).encode()
    try:
        merged = parse_config(text, source=f"{config.source} with {changed}")
    except InputError as error:
        raise UsageError(error.what, where=error.where, hint="look at the option's value") from error
    return msgspec.structs.replace(
        checkpoint,
        config=msgspec.structs.replace(merged, hf_quant=config.hf_quant, source=config.source),
    )


def _merged(data: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(data)
    for name, value in changes.items():
        before = found.get(name)
        both = isinstance(value, Mapping) and isinstance(before, Mapping)
        found[name] = _merged(before, value) if both and before is not None else value
    return found
