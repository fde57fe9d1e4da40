"""Which layers of a checkpoint are quantised, and how: the rules of its ``quantization_config``.

Source: vLLM 0.32 ``layers/quantization/utils/quant_utils.py`` (``is_layer_skipped``), ``modelopt.py``,
``compressed_tensors/utils.py``.
"""

import re
from collections.abc import Callable, Hashable, Iterable
from fnmatch import translate

from fitserve.memory.weights.patterns import compiled
from fitserve.memory.weights.schemes import Plain, Scheme

PLAIN = Plain()

CACHE_SCALES = (4, 0)
"""Scales of query, key, value and probabilities in the model's dtype.
Source: vLLM 0.32 ``layers/quantization/kv_cache.py``."""
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_LAYER = re.compile(r"(?<=\.)(\d+)(?=[.*]|$)")

Skips = Callable[[str, tuple[str, ...]], bool]


class Quantiser:
    """How each named layer is stored: everything in the model's dtype, unless a subclass knows better.

    Attributes:
        kv_scales: numbers in the model's dtype, and further bytes, that each attention layer holds for its cache.
        latent_scales: the same for MLA layers.
        other: another way that vLLM may store the same checkpoint, where the device's kernels decide.
    """

    kv_scales = (0, 0)
    latent_scales = (0, 0)
    other: "Quantiser | None" = None

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
        self._known: dict[tuple[str, tuple[str, ...]], Scheme] = {}
        self._experts = scheme if experts is None else experts
        self._head = head
        self.kv_scales = kv_scales
        self.latent_scales = latent_scales
        self._mentions = Mentions(entries)

    def linear(self, name: str, shards: tuple[str, ...]) -> Scheme:
        """The scheme, unless the layer is left out."""
        known = self._known.get((name, shards))
        if known is None:
            known = self._known[name, shards] = PLAIN if self._skips(name, shards) else self._scheme
        return known

    def experts(self, name: str) -> Scheme:
        """The experts' scheme, unless they are left out."""
        return PLAIN if self._skips(name, ()) else self._experts

    def head(self, name: str) -> Scheme:
        """The scheme where the method covers the output layer."""
        return self.linear(name, ()) if self._head else PLAIN

    def group(self, index: int) -> Hashable:
        """Layers that the same rules mention."""
        return self._mentions.group(index)


class Mentions:
    """Which rules name which layers by their index.

    A rule that may cover several indices in ways that cannot be told (a regular expression with digits) makes every layer
    its own group; one that ends in an index also fits the longer ones that begin with it.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self._apart = False
        self._groups: dict[int, Hashable] = {}
        self._named: dict[int, set[str]] = {}
        self._endings: list[tuple[str, str]] = []
        for entry in entries:
            match = _LAYER.search(entry)
            if match is None:
                self._apart |= entry.startswith("re:") and any(map(str.isdigit, entry))
                continue
            rest = entry[: match.start()] + entry[match.end() :]
            if entry.startswith("re:"):
                self._apart = True
            elif entry[match.end() :] in ("", "*"):
                self._endings.append((match[1], rest))
            else:
                self._named.setdefault(int(match[1]), set()).add(rest)

    def group(self, index: int) -> Hashable:
        """The group of a layer: the rules that name it, with the index taken out."""
        if self._apart:
            return index
        known = self._groups.get(index)
        if known is None:
            own = {rule for number, rule in self._endings if str(index).startswith(number)}
            known = self._groups[index] = frozenset(own | self._named.get(index, set()))
        return known


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
    known = frozenset(plain)
    wild = [
        re.compile(translate(entry))
        for entry in plain
        if any(sign in entry for sign in "*?[") and entry.removesuffix(".*") not in known
    ]
    parts, numbered = _parts([entry for entry in plain if not any(sign in entry for sign in "*?[")])

    def skips(name: str, shards: tuple[str, ...]) -> bool:
        if exact(name, shards) or any(part in name for part in parts):
            return True
        for number in _NUMBER.findall(name):
            if any(part in name for part in numbered.get(number, ())):
                return True
        return any(pattern.match(name) for pattern in wild)

    return skips


def _parts(entries: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Parts of names, and apart from them those that can only fit names with a certain number, by that number."""
    general: list[str] = []
    numbered: dict[str, list[str]] = {}
    for entry in entries:
        found = re.search(r"\.(\d+)\.", entry)
        if found is None:
            general.append(entry)
        else:
            numbered.setdefault(found[1], []).append(entry)
    return general, numbered


def target_skips(entries: Iterable[str]) -> Skips:
    """compressed-tensors': names in full, or regular expressions after ``re:``; all parts of a fused layer count."""
    names = frozenset(entry for entry in entries if not entry.startswith("re:"))
    patterns = [compiled(entry[3:]) for entry in entries if entry.startswith("re:")]

    def hit(name: str) -> bool:
        return name in names or any(pattern.match(name) for pattern in patterns)

    def skips(name: str, shards: tuple[str, ...]) -> bool:
        return hit(name) or all(hit(part) for part in fused_names(name, shards))

    return skips
