"""Names and keys that were met where their meaning is clear, hidden where they stand alone as well."""

import re
from functools import cache

from fitserve.facts.messages.catalogue import needles

MOST_KNOWN = 2_000
_FEWEST_BYTES = 4
_MOST_BYTES = 1_000
"""What is longer is found by its form again; a search for it would take long to make."""
_WORD = re.compile(rb"[A-Za-z0-9_]")
_ORDINARY = frozenset(
    b"""root nobody user users username admin administrator ubuntu debian centos fedora rocky ec2-user azureuser vagrant
    docker podman vllm ray slurm app apps default guest test tester dev prod staging demo none null true false daemon
    service server client worker node nodes host hosts localhost main master head local data model models system
    systemd kernel jovyan runner build builder jenkins gitlab github postgres mysql redis mongodb nginx assistant tool
    developer function python python3 torch cuda triton bash conda home work workspace project projects shared scratch
    login password passwd token secret secrets changeme example public private internal prometheus grafana kubelet
    sudo adm cdrom dip plugdev lxd video render audio wheel staff www-data mail disk kvm libvirt
    oauth2 __token__ x-access-token containerd engine core frontend backend proxy gateway router base string bytes unknown auto empty""".split()
)


class Known:
    """What is hidden wherever it stands alone. Words that vLLM's own messages use are never among it."""

    def __init__(self) -> None:
        self._kinds: dict[bytes, str] = {}
        self._search: object | None = None
        self._order: list[bytes] = []

    def __len__(self) -> int:
        return len(self._kinds)

    def learn(self, kind: str, value: bytes) -> None:
        """Hide the value from now on, unless it is an ordinary word."""
        if (
            value in self._kinds
            or len(self._kinds) >= MOST_KNOWN
            or len(value) > _MOST_BYTES
            or is_ordinary(value)
        ):
            return
        self._kinds[value] = kind
        self._search = None

    def found(self, text: bytes) -> list[tuple[int, int, str]]:
        """Where known values stand alone in a text, in order, with their kinds."""
        if not self._kinds:
            return []
        import ahocorasick_rs

        if self._search is None:
            self._order = list(self._kinds)
            self._search = ahocorasick_rs.BytesAhoCorasick(
                self._order, matchkind=ahocorasick_rs.MatchKind.LeftmostLongest
            )
        hits = self._search.find_matches_as_indexes(text)  # type: ignore[attr-defined]  # a foreign class
        return [
            (start, end, self._kinds[self._order[which]])
            for which, start, end in hits
            if _alone(text, start, end)
        ]


def is_ordinary(value: bytes) -> bool:
    """True for words that mean no one: short ones, numbers, everyday ones, and those of vLLM's messages."""
    lowered = value.lower()
    return (
        len(value) < _FEWEST_BYTES
        or value.isdigit()
        or lowered in _ORDINARY
        or (value.isalpha() and lowered in _spoken())
    )


def _alone(text: bytes, start: int, end: int) -> bool:
    before, after = text[start - 1 : start] if start else b"", text[end : end + 1]
    escaped = text[start - 2 : start] in (b"\\n", b"\\t", b"\\r")
    return (escaped or not _WORD.match(before)) and not _WORD.match(after)


@cache
def _spoken() -> frozenset[bytes]:
    """The words of vLLM's messages."""
    return frozenset(word.lower() for needle in needles() for word in re.findall(rb"[A-Za-z]{4,}", needle))
