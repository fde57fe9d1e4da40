"""Check the documents: links point at files, every command stands in the README, every cause has its page."""

import re
import sys
from pathlib import Path

from fitserve.cli import COMMANDS
from fitserve.diagnose.pages import CAUSES, SECTIONS, page_name

ROOT = Path(__file__).parents[1]
RULES = ROOT / "src" / "fitserve" / "diagnose" / "rules"
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


def unwritten_pages() -> list[str]:
    """Every cause without a page, every page without a cause, missing sections, and pages that the index forgets."""
    index = (ROOT / "docs" / "causes" / "index.md").read_text(encoding="utf-8")
    expected = {page_name(cause) for cause in CAUSES}
    written = {path.name for path in RULES.glob("*.md")}
    found = [f"{name}: the page of a cause, which is not there" for name in sorted(expected - written)]
    found += [f"{name}: a page of no cause" for name in sorted(written - expected)]
    for name in sorted(expected & written):
        headings = re.findall(r"^## (.+)$", (RULES / name).read_text(encoding="utf-8"), re.MULTILINE)
        if tuple(headings) != SECTIONS:
            found.append(f"{name}: its sections are not {', '.join(SECTIONS)}")
        if f"/{name})" not in index:
            found.append(f"docs/causes/index.md: no link to {name}")
    return found


if __name__ == "__main__":
    faults = [*broken_links(), *undocumented_commands(), *unwritten_pages()]
    for fault in faults:
        print(fault, file=sys.stderr)
    sys.exit(1 if faults else 0)
