"""Check the documents: links point at files, and every command stands in the README."""

import re
import sys
from pathlib import Path

from fitserve.cli import COMMANDS

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


def broken_links() -> list[str]:
    """Every relative link of a Markdown file whose target does not exist."""
    found = []
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            if not (page.parent / target).exists():
                found.append(f"{page.relative_to(ROOT)}: link to {target}, which is not there")
    return found


def undocumented_commands() -> list[str]:
    """Every command that the README does not name."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return [f"README.md: no word on fitserve {name}" for name in COMMANDS if f"fitserve {name}" not in readme]


if __name__ == "__main__":
    faults = [*broken_links(), *undocumented_commands()]
    for fault in faults:
        print(fault, file=sys.stderr)
    sys.exit(1 if faults else 0)
