"""The diagnosis against composed logs with right answers: our own corpus, and the reference beside the checkout."""

import gzip
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "corpus"))  # the judge lies beside the logs that it judges

from compose.case import STAGE
from judge import Verdict, judge_folder, misses, rate

OWN = Path(__file__).parent / "corpus"
REFERENCE = Path(__file__).parents[1] / "../shared/corpus"


def read_log(answer: Path) -> str:
    """The text of the log beside an answer."""
    log = answer.with_name(answer.name.replace(".expected.json", ".log"))
    data = log.read_bytes() if log.exists() else gzip.decompress(log.with_suffix(".log.gz").read_bytes())
    return data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8")


@pytest.fixture(scope="module", params=["own", pytest.param("reference", marks=pytest.mark.shared)])
def verdicts(request: pytest.FixtureRequest) -> list[Verdict]:
    """Every log of a corpus, judged."""
    folder = OWN if request.param == "own" else REFERENCE
    if not folder.exists():
        pytest.skip("the reference corpus is not beside this checkout")
    return judge_folder(folder)


@pytest.mark.parametrize(
    ("name", "least"), [("cause", 0.97), ("stage", 0.98), ("line", 0.95), ("advised", 0.95)]
)
def test_answers_are_right(verdicts: list[Verdict], name: str, least: float) -> None:
    """The cause, the stage, the first line (to within one) and the advice are right nearly everywhere."""
    assert rate(verdicts, name) >= least, f"\n{misses(verdicts)}"


def test_no_advice_does_harm(verdicts: list[Verdict]) -> None:
    """No advice is one that makes this case worse or wastes a start."""
    harmed = [verdict for verdict in verdicts if verdict.harmed]

    assert [] == harmed, f"\n{misses(harmed)}"


def test_healthy_and_foreign_logs_are_not_accused(verdicts: list[Verdict]) -> None:
    """A server that came up, and text of another program, get no cause."""
    accused = [verdict for verdict in verdicts if verdict.accused]

    assert [] == accused, f"\n{misses(accused)}"


def test_every_cause_has_logs() -> None:
    """Our own corpus holds at least two logs of every cause."""
    answers = [json.loads(path.read_text(encoding="utf-8")) for path in OWN.glob("*.expected.json")]
    counts = Counter(answer["cause"] for answer in answers)

    assert [] == [cause for cause in STAGE if counts[cause] < 2]


def test_lines_of_the_answers_exist() -> None:
    """A first cause line lies within its log and is not empty."""
    wrong = []
    for path in OWN.glob("*.expected.json"):
        line = json.loads(path.read_text(encoding="utf-8"))["first_cause_line"]
        lines = read_log(path).split("\n")
        if line is not None and (line > len(lines) or not lines[line - 1].strip()):
            wrong.append(path.name)

    assert [] == wrong
