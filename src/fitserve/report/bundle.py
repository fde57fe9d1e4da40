"""A run as one zip file for somebody else: what is in it, and the manifest that says so.

    manifest.json        this, with the SHA-256 of every other file
    record.json          the whole run
    environment.json     the run's environment alone
    frontier.json        context against concurrency, as it was worked out where the model is
    report.html          the run as a page
    logs/trial-N.log     the logs that were kept

The hashes find damage and careless edits; they are no signature.
"""

import re
from typing import Literal

import msgspec

SCHEMA = 1
MANIFEST = "manifest.json"
RECORD = "record.json"
ENVIRONMENT = "environment.json"
FRONTIER = "frontier.json"
PAGE = "report.html"
JSON_NAMES = (RECORD, ENVIRONMENT, FRONTIER)

LOG = re.compile(r"logs/trial-(?P<n>[1-9]\d{0,5})\.log")
MOST_FILES = 1_000
MOST_JSON_BYTES = 64 << 20
MOST_BYTES = 1 << 30
"""More than a run of 40 starts keeps; what a bundle unpacks to beyond it is refused."""


class BundledFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a bundle.

    Attributes:
        name: its path in the zip file.
        size_bytes: unpacked.
        sha256: of its content, in hexadecimal.
    """

    name: str
    size_bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle holds.

    Attributes:
        fitserve_version: what made it.
        run: the run's id.
        redacted: whether private things were hidden.
        redactions: for each kind, how many different values and how many places.
        files: every other file.
    """

    schema: int = SCHEMA
    kind: Literal["bundle"] = "bundle"
    fitserve_version: str
    run: str
    redacted: bool
    redactions: dict[str, tuple[int, int]] = {}
    files: list[BundledFile]


def log_name(n: int) -> str:
    """The name of a trial's log in a bundle."""
    return f"logs/trial-{n}.log"


def is_allowed(name: str) -> bool:
    """True for the names that a bundle may hold; none of them leaves a folder."""
    return name in (MANIFEST, PAGE, *JSON_NAMES) or LOG.fullmatch(name) is not None
