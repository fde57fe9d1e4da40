"""A checkpoint in a local directory, or a GGUF file: nothing is fetched, nothing of it is run."""

from pathlib import Path

from fitserve.errors import InputError
from fitserve.facts.checkpoint.checkpoint import Checkpoint, Tensor
from fitserve.facts.checkpoint.gguf import read_gguf
from fitserve.facts.checkpoint.index import INDEX_NAME, parse_index
from fitserve.facts.checkpoint.pointer import refuse_pointer
from fitserve.facts.checkpoint.safetensors_header import LENGTH_BYTES, header_length, parse_header
from fitserve.facts.model_config import ModelConfig, parse_config

_LARGEST_JSON_BYTES = 256 << 20

_OTHER_WEIGHTS = ("*.bin", "*.pt")
"""Files that vLLM loads where there is no safetensors file; their sizes are not read."""

_NO_MODELS = {
    "adapter_config.json": (
        "the folder holds an adapter, not a model",
        "plan its base model, with --enable-lora and --max-lora-rank",
    ),
    "params.json": (
        "there is no config.json; Mistral's own layout (params.json) is not read",
        "give the directory of the same model in the layout of transformers",
    ),
    "model_index.json": ("the folder holds a diffusion pipeline, which is no language model", ""),
}
"""What a folder without ``config.json`` is by another file in it, with what helps."""


def read_directory(folder: Path) -> Checkpoint:
    """The checkpoint of a directory.

    Raises:
        InputError: there is no usable ``config.json``, or a header is damaged.
    """
    if not (folder / "config.json").exists():
        files = sorted(folder.glob("*.gguf"))
        if len(files) == 1:
            return read_gguf_file(files[0])
        raise _no_model(folder, files)
    config = _read_config(folder)
    tensors, size, missing = _read_tensors(folder)
    return Checkpoint(
        config=config,
        tensors=tensors,
        size_bytes=size,
        format="config" if size is None else "safetensors",
        source=str(folder),
        missing=missing,
    )


def _no_model(folder: Path, files: list[Path]) -> InputError:
    """Why a folder without a configuration is no model here, and what would be."""
    for name, (what, hint) in _NO_MODELS.items():
        if (folder / name).is_file():
            return InputError(what, where=str(folder / name), hint=hint)
    if files:
        names = ", ".join(path.name for path in files[:3]) + (" and more" if len(files) > 3 else "")
        return InputError(
            f"there are {len(files)} GGUF files: {names}", where=str(folder), hint="give one of them"
        )
    return InputError(
        "there is no config.json",
        where=str(folder),
        hint="give the directory that the model was downloaded to, or one GGUF file",
    )


def read_gguf_file(path: Path) -> Checkpoint:
    """The checkpoint of a GGUF file.

    Raises:
        InputError: it cannot be read, or is no GGUF file.
    """
    _check_weights(path)
    try:
        with path.open("rb") as stream:
            return read_gguf(stream, str(path))
    except OSError as error:
        raise InputError(f"it cannot be read: {error.strerror}", where=str(path)) from error


def _read_config(folder: Path) -> ModelConfig:
    text = read_json_file(folder / "config.json")
    quant = folder / "hf_quant_config.json"
    return parse_config(
        text, source=str(folder / "config.json"), hf_quant=read_json_file(quant) if quant.is_file() else None
    )


def read_json_file(path: Path) -> bytes:
    """The bytes of a small file.

    Raises:
        InputError: it cannot be read, is no file (a loop of links, a pipe), or is far too large for what it should be.
    """
    try:
        if not path.is_file():
            raise InputError("it is no file", where=str(path))
        refuse_pointer(path)
        size = path.stat().st_size
        if size > _LARGEST_JSON_BYTES:
            raise InputError(f"it has {size:,} bytes, too many for a description of a model", where=str(path))
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"it cannot be read: {error.strerror}", where=str(path)) from error


def _read_tensors(folder: Path) -> tuple[dict[str, Tensor], int | None, tuple[str, ...]]:
    """All tensors and their bytes; no tensors where files of the index are missing, which are named where others are there."""
    index = folder / INDEX_NAME
    if index.is_file():
        shards = parse_index(read_json_file(index), str(index))
        files = [folder / name for name in shards.files]
        for path in files:
            refuse_pointer(path)
        missing = tuple(path.name for path in files if not path.is_file())
        if missing:
            return {}, shards.size_bytes, missing if len(missing) < len(files) else ()
    else:
        files = weight_files(sorted(folder.glob("*.safetensors")))
        for path in () if files else (path for kind in _OTHER_WEIGHTS for path in folder.glob(kind)):
            refuse_pointer(path)
    tensors: dict[str, Tensor] = {}
    for path in files:
        tensors |= read_header(path)
    return tensors, sum(tensor.size_bytes for tensor in tensors.values()) if tensors else None, ()


def weight_files(files: list[Path]) -> list[Path]:
    """The files that vLLM loads: not the second copy of the weights in Mistral's own layout.

    Source: vLLM 0.32 ``model_loader/weight_utils.py``.
    """
    own = [path for path in files if not path.name.startswith("consolidated")]
    return own or files


def read_header(path: Path) -> dict[str, Tensor]:
    """The tensors of one safetensors file; its weights are not read.

    Raises:
        InputError: it cannot be read or its header is damaged.
    """
    _check_weights(path)
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = header_length(stream.read(LENGTH_BYTES), str(path), size)
            text = stream.read(length)
    except OSError as error:
        raise InputError(f"it cannot be read: {error.strerror}", where=str(path)) from error
    return parse_header(text, str(path), size - LENGTH_BYTES - length)


def _check_weights(path: Path) -> None:
    """The path is a file, not a pipe that nobody writes to, and not a pointer to one."""
    try:
        is_other = path.exists() and not path.is_file()
    except OSError as error:
        raise InputError(f"it cannot be read: {error.strerror}", where=str(path)) from error
    if is_other:
        raise InputError("it is no file", where=str(path))
    refuse_pointer(path)
