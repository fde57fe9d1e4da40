"""A model's ``config.json``, read with care: nothing in it is trusted, nothing of it is run."""

import json
from pathlib import PurePath
from typing import Any

import msgspec

from fitserve.errors import InputError
from fitserve.facts.config_check import check_config

_TEXT_KEYS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where multimodal configurations keep the language model. Source: vLLM 0.32 ``transformers_utils/config.py``."""

_MARKS = {b"\xef\xbb\xbf": "UTF-8", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
"""What an editor may put before a text, which Python's JSON refuses."""

_LARGEST = 1 << 40
"""No count in a configuration is larger; what is, is damage."""


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a model's configuration.

    Attributes:
        data: the whole ``config.json``.
        text: the language model's part of it; the whole where nothing is nested.
        hf_quant: ``hf_quant_config.json`` of a ModelOpt checkpoint, if there is one.
        source: the file, for messages and sources.
    """

    data: dict[str, Any]
    text: dict[str, Any]
    hf_quant: dict[str, Any] | None = None
    source: str = "config.json"

    @property
    def architecture(self) -> str:
        """The first of ``architectures``.

        Raises:
            InputError: there is none.
        """
        names = self.data.get("architectures") or self.text.get("architectures")
        if not isinstance(names, list) or not names or not isinstance(names[0], str):
            raise InputError("the configuration names no architecture", where=f"{self.source}: architectures")
        return names[0]

    @property
    def quantization(self) -> dict[str, Any] | None:
        """The ``quantization_config``, wherever it stands, or ModelOpt's own file."""
        for place in (self.data, self.text):
            found = place.get("quantization_config") or place.get("compression_config")
            if isinstance(found, dict):
                return found
        if isinstance(self.hf_quant, dict):
            return self.hf_quant
        return None

    def integer(self, *names: str, default: int | None = None) -> int:
        """A whole number of the language model's part: the first of the names that is there.

        Raises:
            InputError: none is there and there is no default, or the value is no whole number from 0 on.
        """
        return read_integer(self.text, names, self.source, default)


def read_integer(
    place: dict[str, Any], names: tuple[str, ...], source: str, default: int | None = None
) -> int:
    """A whole number of a part of a configuration: the first of the names that is there and not null."""
    for name in names:
        value = place.get(name)
        if value is None:
            continue
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
            raise InputError(
                f"{value!r} is no count", where=f"{source}: {name}", hint="give a whole number from 0 on"
            )
        return value
    if default is None:
        raise InputError("a number is missing", where=f"{source}: {' or '.join(names)}")
    return default


def parse_config(text: bytes, *, source: str = "config.json", hf_quant: bytes | None = None) -> ModelConfig:
    """Read the bytes of a ``config.json``.

    Args:
        text: the file's bytes.
        source: its name, for messages.
        hf_quant: the bytes of ``hf_quant_config.json`` beside it.

    Raises:
        InputError: it is no JSON object, or a value in it cannot be.
    """
    data = read_object(text, source)
    quant_source = str(PurePath(source).with_name("hf_quant_config.json"))
    quant = None if hf_quant is None else read_object(hf_quant, quant_source)
    language = _language_part(data)
    check_config(data, language, source)
    return ModelConfig(data=data, text=language, hf_quant=quant, source=source)


def read_object(text: bytes, source: str) -> dict[str, Any]:
    """A JSON object in UTF-8, as transformers reads it; of a key that stands twice the last value counts.

    Raises:
        InputError: it is none.
    """
    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        data = _read_python_json(text, source)
    if not isinstance(data, dict):
        raise InputError("it is no JSON object", where=source)
    return data


def _read_python_json(text: bytes, source: str) -> object:
    """JSON as Python writes it: ``Infinity`` and ``NaN`` count, as in some published configurations."""
    mark = next((name for start, name in _MARKS.items() if text.startswith(start)), None)
    if mark is not None:
        raise InputError(
            f"it begins with the byte order mark of {mark}",
            where=source,
            hint="vLLM reads UTF-8 without a mark: save it so",
        )
    try:
        return json.loads(text.decode("utf-8"))
    except RecursionError:
        raise InputError("it is nested too deep", where=source) from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"it is not in UTF-8: {error.reason} at byte {error.start:,}", where=source
        ) from error
    except ValueError as error:
        raise InputError(f"it is no JSON: {error}", where=source) from error


def _language_part(data: dict[str, Any]) -> dict[str, Any]:
    """The nested language configuration, at most two levels down (``thinker_config.text_config``)."""
    part = data
    for _ in range(2):
        nested = next((part[key] for key in _TEXT_KEYS if isinstance(part.get(key), dict)), None)
        if nested is None:
            break
        part = nested
    return part
