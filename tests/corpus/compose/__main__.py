"""Writes the corpus: `VLLM_SOURCES=folder python -m compose` in tests/corpus."""

import gzip
import json
import re
import sys
from importlib import import_module
from pathlib import Path

from . import sources
from .case import Case

FOLDER = Path(__file__).parents[1]
MODULES = [
    import_module(f".{path.stem}", __package__) for path in sorted(Path(__file__).parent.glob("[a-z]*.py"))
]
FAMILIES = tuple(module for module in MODULES if hasattr(module, "cases"))
"""Whatever makes cases."""

PACK_ABOVE_BYTES = 14_000


def cases() -> list[Case]:
    """All cases, in the order of their ids."""
    found = [case for family in FAMILIES for case in family.cases()]
    doubled = {case.id for case in found if [other.id for other in found].count(case.id) > 1}
    if doubled:
        raise ValueError(f"ids used twice: {sorted(doubled)}")
    return sorted(found, key=lambda case: case.id)


def write(case: Case) -> None:
    """The log and its answer."""
    expected = case.expected()
    (FOLDER / f"{case.id}.expected.json").write_text(
        json.dumps(expected, ensure_ascii=False, indent=1) + "\n"
    )
    data = ("".join(line.text + case.ending for line in case.lines)).encode(case.encoding)
    if case.packed or len(data) > PACK_ABOVE_BYTES:
        (FOLDER / f"{case.id}.log.gz").write_bytes(gzip.compress(data, mtime=0))
    else:
        (FOLDER / f"{case.id}.log").write_bytes(data)


def main() -> None:
    """Replace the folder's logs and answers."""
    found = cases()
    for old in FOLDER.iterdir():
        if re.fullmatch(r"[a-z0-9-]+\.(log|log\.gz|expected\.json)", old.name):
            old.unlink()
    for case in found:
        write(case)
    sources.save()
    sys.stdout.write(f"{len(found)} logs\n")


if __name__ == "__main__":
    main()
