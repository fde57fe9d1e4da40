"""``fitserve explain``, and the pages that it shows."""

import json
import re
import subprocess
import sys
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from fitserve.diagnose.pages import CAUSES, SECTIONS, page, page_name
from fitserve.facts.serve_options import arity, full_name
from fitserve.memory.history import NEWEST, has_flag, release

PAGES = sorted(CAUSES)
CHECKOUT = Path(__file__).parents[2]
FOREIGN = {
    "--force-download": "hf download",
    "--format": "nvidia-smi",
    "--gpus": "docker run",
    "--gres": "srun",
    "--ipc": "docker run",
    "--local-dir": "hf download",
    "--mem": "srun",
    "--memory": "docker run",
    "--no-": "the prefix of vLLM's switches",
    "--no-pager": "journalctl",
    "--nproc-per-node": "torch.distributed.run",
    "--previous": "kubectl logs",
    "--query-compute-apps": "nvidia-smi",
    "--query-gpu": "nvidia-smi",
    "--shm-size": "docker run",
    "--version": "vllm",
}
"""Options of other programs that the pages name."""

FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
FLAG_SINCE = re.compile(r"`(--[a-z][a-z0-9-]*)[^`]*` \((\d+\.\d+(?:\.\d+)?)\+")
REFERENCE = CHECKOUT.parent / "shared" / "causes.md"


def explain(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "fitserve", "explain", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("cause", PAGES)
def test_page_has_every_section(cause: str) -> None:
    """A page begins with its cause and has the same sections in the same order as all others, none empty."""
    text = page(cause).text
    title, *parts = re.split(r"^## ", text, flags=re.MULTILINE)

    assert title.splitlines()[0] == f"# {cause}"
    assert SECTIONS == tuple(part.splitlines()[0] for part in parts)
    assert [] == [part for part in parts if len(part.splitlines()) < 3]


@pytest.mark.parametrize("cause", PAGES)
def test_page_names_its_stage(cause: str) -> None:
    """The table of a page says the stage that the cause has in the vocabulary."""
    cells = page(cause).text.split("|\n")[2].split("|")

    assert CAUSES[cause].replace("-", "\u2013") == cells[1].strip()
    assert all(cell.strip() for cell in cells[1:5])


@pytest.mark.parametrize("cause", PAGES)
def test_page_names_only_flags_that_exist(cause: str) -> None:
    """Each option on a page is one that some vLLM release has, or one of a program that the table above names."""
    named = set(FLAG.findall(page(cause).text))

    assert set() == {flag for flag in named if arity(full_name(flag)) is None} - FOREIGN.keys()


@pytest.mark.parametrize("cause", PAGES)
def test_page_dates_no_flag_before_its_release(cause: str) -> None:
    """Where a page says that a flag is there from a release on, that release has it."""
    text = " ".join(page(cause).text.split())
    wrong = [
        (flag, since)
        for flag, since in FLAG_SINCE.findall(text)
        if release(since) <= release(NEWEST) and not has_flag(flag[2:].replace("-", "_"), since)
    ]

    assert wrong == []


@pytest.mark.parametrize("cause", PAGES)
def test_page_refers_to_causes_that_exist(cause: str) -> None:
    """A word in backticks that is spelled like a cause of some family is a cause."""
    families = (
        "gpu-memory-",
        "kv-",
        "model-n",
        "model-a",
        "weights-do",
        "graph-",
        "host-",
        "shm-",
        "request-",
        "not-",
    )
    named = {
        word for word in re.findall(r"`([a-z]+(?:-[a-z]+)+)`", page(cause).text) if word.startswith(families)
    }

    assert named <= CAUSES.keys()


def test_every_cause_has_a_page_and_every_page_a_cause() -> None:
    """The pages beside the rules are those of the vocabulary."""
    folder = files("fitserve.diagnose.rules")
    found = {entry.name for entry in folder.iterdir() if entry.name.endswith(".md")}

    assert {page_name(cause) for cause in CAUSES} == found


def test_every_rule_names_a_cause_of_the_vocabulary() -> None:
    """No rule invents a cause that has no page."""
    folder = files("fitserve.diagnose.rules")
    modules = [entry.name[:-3] for entry in folder.iterdir() if entry.name.endswith(".py")]
    named = {getattr(import_module(f"fitserve.diagnose.rules.{name}"), "CAUSE", None) for name in modules} - {
        None
    }

    assert named <= CAUSES.keys()


def test_index_of_the_documents_links_to_every_page() -> None:
    """The documents list each page once, and the links lead to the files that ``explain`` shows."""
    index = CHECKOUT / "docs" / "causes" / "index.md"
    targets = re.findall(r"\]\(([^)]+\.md)\)", index.read_text(encoding="utf-8"))

    assert sorted(page_name(cause) for cause in CAUSES) == sorted(Path(target).name for target in targets)
    assert all((index.parent / target).is_file() for target in targets)


def test_documents_check_fails_without_a_page(tmp_path: Path) -> None:
    """The documents' check says which page is missing."""
    check = (CHECKOUT / "docs" / "check.py").read_text(encoding="utf-8")
    copy = tmp_path / "docs" / "check.py"
    copy.parent.mkdir()
    copy.write_text(check, encoding="utf-8")
    (tmp_path / "docs" / "causes").mkdir()
    (tmp_path / "docs" / "causes" / "index.md").write_text("", encoding="utf-8")
    (tmp_path / "README.md").write_text("", encoding="utf-8")
    run = subprocess.run([sys.executable, str(copy)], capture_output=True, text=True, timeout=60, check=False)

    assert run.returncode == 1
    assert "serving_oom.md: the page of a cause, which is not there" in run.stderr


@pytest.mark.shared
@pytest.mark.skipif(not REFERENCE.exists(), reason="the reference folder is not beside the checkout")
def test_vocabulary_is_the_agreed_one() -> None:
    """Every agreed cause is in the vocabulary under its stage."""
    rows = re.findall(r"^\| `([a-z-]+)` \| (\S+) \|", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE)

    assert len(rows) > 40
    assert (
        dict(rows).items() <= {cause: stage.replace("-", "\u2013") for cause, stage in CAUSES.items()}.items()
    )


def test_explain_prints_the_page() -> None:
    """Piped, the page comes as the Markdown that it is."""
    run = explain("sampler-warmup-oom")

    assert run.returncode == 0
    assert page("sampler-warmup-oom").text.strip() == run.stdout.strip()


def test_explain_takes_the_name_in_other_spellings() -> None:
    """Underscores and capitals name the same cause."""
    run = explain("Disk_Full", "--json")

    assert json.loads(run.stdout)["cause"] == "disk-full"


def test_explain_as_json() -> None:
    """The JSON of a page is the contract: cause, stage, text."""
    found: dict[str, Any] = json.loads(explain("kv-allocation-oom", "--json").stdout)

    assert {"schema": 1, "kind": "page", "cause": "kv-allocation-oom", "stage": "kv_cache"} == {
        key: value for key, value in found.items() if key != "text"
    }
    assert page("kv-allocation-oom").text == found["text"]


def test_explain_in_colour() -> None:
    """On a terminal the page is set: no Markdown marks are left, and lines fit 120 columns."""
    text = explain("disk-full", "--color", "always").stdout
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)

    assert "\x1b[" in text
    assert "## What you see" not in plain
    assert "What you see" in plain
    assert max(map(len, plain.splitlines())) <= 120


def test_explain_lists_every_cause_on_one_line() -> None:
    """Without a cause the list comes, in the order of the stages."""
    lines = explain().stdout.splitlines()
    listed = [line.split()[0] for line in lines if line.startswith("  ")]

    assert list(CAUSES) == listed
    assert lines[0] == "environment"


def test_list_as_json() -> None:
    """The list as JSON has the same causes, each with its stage and its sentence."""
    found = json.loads(explain("--json").stdout)

    assert found["kind"] == "causes"
    assert list(CAUSES.items()) == [(entry["cause"], entry["stage"]) for entry in found["causes"]]
    assert all(entry["summary"].endswith(".") for entry in found["causes"])


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("sampler-warmup", "sampler-warmup-oom"),
        ("dsk-full", "disk-full"),
        ("kv-cache", "kv-cache-smaller-than-context"),
    ],
)
def test_unknown_cause_gets_the_closest_names(typed: str, meant: str) -> None:
    """A name that is not one ends with code 2 and a suggestion."""
    run = explain(typed)

    assert run.returncode == 2
    assert run.stdout == ""
    assert f"no cause is called '{typed}'" in run.stderr
    assert meant in run.stderr


def test_hopeless_name_gets_the_list() -> None:
    """A name that resembles nothing is sent to the list."""
    run = explain("qqq")

    assert run.returncode == 2
    assert "fitserve explain lists the causes" in run.stderr


def test_the_page_of_the_moves_is_what_explain_prints() -> None:
    """``docs/moves.md`` is the table; whoever changes the table writes the page anew."""
    from fitserve.plan.moves.table import MOVES
    from fitserve.report.moves_markdown import render_moves

    page = Path(__file__).parents[2] / "docs" / "moves.md"

    assert page.read_text(encoding="utf-8") == render_moves(MOVES)
