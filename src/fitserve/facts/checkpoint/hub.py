"""A checkpoint on the Hugging Face Hub: its configuration, and headers by range requests; weights are not fetched.

``HF_TOKEN``, ``HF_HUB_OFFLINE``, ``HF_ENDPOINT`` and ``HF_HOME`` count as in every other tool of that ecosystem.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fitserve.errors import InputError
from fitserve.facts.checkpoint.checkpoint import Checkpoint, Tensor
from fitserve.facts.checkpoint.local import read_directory

if TYPE_CHECKING:
    from huggingface_hub import SafetensorsRepoMetadata


def read_hub(model: str, revision: str | None = None, *, fetch: bool = True) -> Checkpoint:
    """The checkpoint of a Hub id. What lies in the local cache is read there.

    Args:
        model: ``ORG/NAME``.
        revision: a branch, tag or commit.
        fetch: False to ask no network.

    Raises:
        InputError: ``huggingface_hub`` is not installed, or the Hub does not give the model.
    """
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError
    except ImportError as error:
        raise InputError(
            f"{model} is no local directory, and huggingface_hub is not installed",
            where=model,
            hint='install it (pip install "fitserve[hub]"), or give a local directory',
        ) from error
    # What its retries say is said once, by the error.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        config = Path(hf_hub_download(model, "config.json", revision=revision, local_files_only=not fetch))
    except (EntryNotFoundError, HfHubHTTPError, OSError, ValueError) as error:
        raise _refused(model, error) from error
    for name in ("hf_quant_config.json", "model.safetensors.index.json"):
        try:
            hf_hub_download(model, name, revision=revision, local_files_only=not fetch)
        except (EntryNotFoundError, HfHubHTTPError, OSError, ValueError):
            continue
    checkpoint = read_directory(config.parent)
    if checkpoint.tensors:
        return msgspec.structs.replace(checkpoint, source=model)
    tensors = _remote_tensors(model, revision) if fetch else {}
    size = sum(tensor.size_bytes for tensor in tensors.values()) if tensors else checkpoint.size_bytes
    return msgspec.structs.replace(
        checkpoint,
        tensors=tensors,
        size_bytes=size,
        format="config" if size is None else "safetensors",
        source=model,
    )


def _remote_tensors(model: str, revision: str | None) -> dict[str, Tensor]:
    """The headers of the model's files; none where it has no safetensors files, or the Hub is out of reach."""
    from huggingface_hub import get_safetensors_metadata
    from huggingface_hub.errors import HfHubHTTPError, NotASafetensorsRepoError, SafetensorsParsingError

    try:
        found = get_safetensors_metadata(model, revision=revision)
    except (NotASafetensorsRepoError, SafetensorsParsingError, HfHubHTTPError, OSError, ValueError):
        return {}
    return _tensors(found)


def _tensors(found: "SafetensorsRepoMetadata") -> dict[str, Tensor]:
    return {
        name: Tensor(
            dtype=str(info.dtype),
            shape=tuple(info.shape),
            size_bytes=info.data_offsets[1] - info.data_offsets[0],
        )
        for file in found.files_metadata.values()
        for name, info in file.tensors.items()
    }


def _refused(model: str, error: Exception) -> InputError:
    """The first line of the Hub's answer, and what helps."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    kind = type(error).__name__
    if kind == "GatedRepoError" or status in (401, 403):
        return InputError(
            f"{model} is private, gated or does not exist: the Hub answered {status}",
            where=model,
            hint="accept its terms on its page and set HF_TOKEN, or check the name",
        )
    if (
        kind in {"RepositoryNotFoundError", "RevisionNotFoundError", "RemoteEntryNotFoundError"}
        or status == 404
    ):
        return InputError(f"the Hub has no config.json for {model}", where=model, hint="check the name")
    if kind in {"LocalEntryNotFoundError", "OfflineModeIsEnabled"}:
        return InputError(
            f"{model} is not in the local cache, and the Hub cannot be asked",
            where=model,
            hint="unset HF_HUB_OFFLINE, or check the network and HF_ENDPOINT, or give a local directory",
        )
    first = (str(error).strip().splitlines() or [kind])[0]
    return InputError(f"the Hub does not give {model}: {first}", where=model)
