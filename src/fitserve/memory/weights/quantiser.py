"""Which layers of a checkpoint are quantised, and how: the rules of its ``quantization_config``.

Source: vLLM 0.32 ``layers/quantization/utils/quant_utils.py`` (``is_layer_skipped``), ``modelopt.py``,
``compressed_tensors/utils.py``.
"""

import re
from collections.abc import Callable, Hashable, Iterable
from fnmatch import fnmatchcase
from functools import lru_cache

from fitserve.memory.weights.schemes import Plain, Scheme

PLAIN = Plain()

CACHE_SCALES = (4, 0)
"""Scales of query, key, value and probabilities in the model's dtype.
Source: vLLM 0.32 ``layers/quantization/kv_cache.py``."""
_LAYER = re.compile(r"(?<=\.)(\d+)(?=[.*]|$)")

Skips = Callable[[str, tuple[str, ...]], bool]


class Quantiser:
    """How each named layer is stored: everything in the model's dtype, unless a subclass knows better.

    Attributes:
        kv_scales: numbers in the model's dtype, and further bytes, that each attention layer holds for its cache.
        latent_scales: the same for MLA layers.
    """

    kv_scales = (0, 0)
    latent_scales = (0, 0)

    def linear(self, name: str, shards: tuple[str, ...]) -> Scheme:
        """The scheme of a linear layer.

        Args:
            name: vLLM's name of it.
            shards: the checkpoint's names of the parts that vLLM fuses in it.
        """
        return PLAIN

    def experts(self, name: str) -> Scheme:
        """The scheme of a layer of routed experts."""
        return PLAIN

    def head(self, name: str) -> Scheme:
        """The scheme of the output layer."""
        return PLAIN

    def group(self, index: int) -> Hashable:
        """Layers of one group are treated alike."""
        return None


class RuledQuantiser(Quantiser):
    """One scheme for all layers that no rule leaves out."""

    def __init__(
        self,
        scheme: Scheme,
        skips: Skips,
        entries: Iterable[str] = (),
        *,
        experts: Scheme | None = None,
        head: bool = False,
        kv_scales: tuple[int, int] = (0, 0),
        latent_scales: tuple[int, int] = (0, 0),
    ) -> None:
        self._scheme = scheme
        self._skips = skips
        self._experts = scheme if experts is None else experts
        self._head = head
        self.kv_scales = kv_scales
        self.latent_scales = latent_scales
        self._mentions = mentions(tuple(entries))

    def linear(self, name: str, shards: tuple[str, ...]) -> Scheme:
        """The scheme, unless the layer is left out."""
        return PLAIN if self._skips(name, shards) else self._scheme

    def experts(self, name: str) -> Scheme:
        """The experts' scheme, unless they are left out."""
        return PLAIN if self._skips(name, ()) else self._experts

    def head(self, name: str) -> Scheme:
        """The scheme where the method covers the output layer."""
        return self.linear(name, ()) if self._head else PLAIN

    def group(self, index: int) -> Hashable:
        """Layers that the same rules mention."""
        return group_of(self._mentions, index)


Mentions = dict[int, frozenset[str]] | None
"""For each layer's index the rules that name it, with the index taken out; None where that cannot be told."""


@lru_cache(maxsize=64)
def mentions(entries: tuple[str, ...]) -> Mentions:
    """The layers that rules name by their index.

    A rule that may cover several indices (a regular expression with digits, an index at the end, which also is a
    part of longer ones) makes every layer its own group.
    """
    found: dict[int, set[str]] = {}
    for entry in entries:
        match = _LAYER.search(entry)
        if match is None:
            if any(map(str.isdigit, entry)) and entry.startswith("re:"):
                return None
            continue
        if entry.startswith("re:") or entry[match.end() :] in ("", "*"):
            return None
        found.setdefault(int(match[1]), set()).add(entry[: match.start()] + entry[match.end() :])
    return {index: frozenset(rules) for index, rules in found.items()}


def group_of(known: Mentions, index: int) -> Hashable:
    """The group of a layer: the rules that name it."""
    return index if known is None else known.get(index)


def fused_names(name: str, shards: tuple[str, ...]) -> list[str]:
    """The checkpoint's names of the parts of a fused layer."""
    stem, _, last = name.rpartition(".")
    return (
        [f"{stem}.{shard}" if stem else shard for shard in shards]
        if shards
        else [f"{stem}.{last}" if stem else last]
    )


def exact_skips(entries: Iterable[str]) -> Skips:
    """Names in full; a fused layer is left out where its parts are; experts where a rule starts with their name."""
    names = frozenset(entries)
    experts = [name for name in names if "experts" in name]

    def skips(name: str, shards: tuple[str, ...]) -> bool:
        if name in names:
            return True
        if shards:
            return any(part in names for part in fused_names(name, shards))
        return name.endswith("experts") and any(name in entry for entry in experts)

    return skips


def substring_skips(entries: Iterable[str]) -> Skips:
    """Any part of the name."""
    parts = tuple(entries)

    def skips(name: str, shards: tuple[str, ...]) -> bool:
        return any(part in each for each in (name, *fused_names(name, shards)) for part in parts)

    return skips


def expanded(entries: Iterable[str]) -> list[str]:
    """ModelOpt's ``tower*`` means the tower and what is in it, so it becomes two rules before names change."""
    plain: list[str] = []
    for entry in entries:
        if len(entry) >= 2 and entry.endswith("*") and entry[-2] != ".":
            plain += [entry[:-1], f"{entry[:-1]}.*"]
        else:
            plain.append(entry)
    return plain


def wildcard_skips(entries: Iterable[str]) -> Skips:
    """ModelOpt's: names in full, any part of the name, and shell wildcards."""
    plain = tuple(entries)
    exact = exact_skips(plain)
    wild = [entry for entry in plain if any(sign in entry for sign in "*?[")]
    parts = [entry for entry in plain if entry not in wild]

    def skips(name: str, shards: tuple[str, ...]) -> bool:
        if exact(name, shards) or any(part in name for part in parts):
            return True
        return any(fnmatchcase(name, pattern) for pattern in wild)

    return skips


def target_skips(entries: Iterable[str]) -> Skips:
    """compressed-tensors': names in full, or regular expressions after ``re:``; all parts of a fused layer count."""
    names = frozenset(entry for entry in entries if not entry.startswith("re:"))
    patterns = [re.compile(entry[3:]) for entry in entries if entry.startswith("re:")]

    def hit(name: str) -> bool:
        return name in names or any(pattern.match(name) for pattern in patterns)

    def skips(name: str, shards: tuple[str, ...]) -> bool:
        return hit(name) or all(hit(part) for part in fused_names(name, shards))

    return skips
