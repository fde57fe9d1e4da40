"""vLLM's ``--config FILE``: read, and edited in its text, so that comments and order stay.

PyYAML tells where each value stands, which is all that an edit of one value needs; a second YAML library that writes
comments back would be a dependency for nothing.

Source: vLLM 0.32.0 ``utils/argparse_utils.py``: ``load_config_file`` turns each key into an option, true into a switch, a
list into several values, a mapping into JSON; the command's own options count before the file's. A false is passed over:
its twin is looked for among the options of ``vllm``, not of ``vllm serve``. What is off is written ``no-NAME: true``.
"""

import json
from pathlib import Path
from typing import Any

import msgspec

from fitserve.facts.serve_options import SWITCHES


class Entry(msgspec.Struct, frozen=True):
    """One setting of the file: its value as vLLM takes it, and where key and value stand in the text, in characters."""

    value: Any
    key_start: int
    start: int
    end: int


class ConfigFile(msgspec.Struct, frozen=True, kw_only=True):
    """A config file.

    Attributes:
        path: where it is.
        text: as it is now.
        original: as it was read.
        entries: its settings by vLLM's name with underscores.
    """

    path: str
    text: str
    original: str
    entries: dict[str, Entry]

    @property
    def edited(self) -> bool:
        """True where it is no longer as it was read."""
        return self.text != self.original

    @property
    def values(self) -> dict[str, Any]:
        """The settings by name, without those that vLLM passes over."""
        return {name: entry.value for name, entry in self.entries.items() if entry.value is not None}

    def with_value(self, name: str, value: Any) -> "ConfigFile":
        """The file with the value of a setting that it has replaced."""
        entry = self.entries[name]
        return self._reread(self.text[: entry.start] + _scalar(value) + self.text[entry.end :])

    def without(self, name: str) -> "ConfigFile":
        """The file without the lines of a setting."""
        entry = self.entries[name]
        start = self.text.rfind("\n", 0, entry.key_start) + 1
        end = self.text.find("\n", entry.end)
        return self._reread(self.text[:start] + ("" if end < 0 else self.text[end + 1 :]))

    def _reread(self, text: str) -> "ConfigFile":
        return msgspec.structs.replace(self, text=text, entries=_entries(text))


def read_config_file(path: str) -> ConfigFile | None:
    """The file; None where it cannot be read as settings, which is vLLM's to complain about."""
    import yaml

    try:
        text = Path(path).read_text(encoding="utf-8")
        return ConfigFile(path=path, text=text, original=text, entries=_entries(text))
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return None


def _entries(text: str) -> dict[str, Entry]:
    """Each key of the top mapping.

    Raises:
        ValueError: it is no block mapping with plain keys.
    """
    import yaml

    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise ValueError("no block mapping")
    values = yaml.safe_load(text)
    entries = {}
    for key, value in root.value:
        read = yaml.safe_load(key.value) if key.tag != "tag:yaml.org,2002:str" else key.value
        name, meant = _meant(str(key.value).replace("-", "_"), values[read])
        entries[name] = Entry(meant, key.start_mark.index, value.start_mark.index, _end(value))
    return entries


def _meant(name: str, value: Any) -> tuple[str, Any]:
    """The option that a key stands for, and its value; None for a false, which vLLM passes over."""
    twin = name.removeprefix("no_")
    if twin != name and twin in SWITCHES and isinstance(value, bool):
        return twin, False if value else None
    return name, None if value is False else value


def _end(node: Any) -> int:
    """Where a value's last character stands; a block's own mark would take in the comments behind it."""
    import yaml

    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        return int(node.end_mark.index) - 1
    return int(node.end_mark.index)


def _scalar(value: Any) -> str:
    """A value on one line: JSON is YAML too; a plain text stays plain."""
    import yaml

    if isinstance(value, str):
        return yaml.safe_dump(value, width=1 << 30).removesuffix("\n...\n").rstrip("\n")
    return json.dumps(value)
