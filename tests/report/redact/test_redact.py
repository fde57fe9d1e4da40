"""What leaves holds nothing private, and still gives the same diagnosis."""

import gzip
import io
import json
import random
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # the drawn secrets lie beside the tests

import people_and_places
from planted import KINDS, planted, private_key

from fitserve.diagnose.engine import diagnose_lines
from fitserve.diagnose.finding import Diagnosis
from fitserve.facts.messages.catalogue import needles
from fitserve.facts.scan import read_candidates
from fitserve.report.redact.pseudonyms import MOST_DISTINCT
from fitserve.report.redact.redactor import BLOCK_BYTES, Redactor

HERE = Path(__file__).parent
OWN_LOGS = sorted((HERE.parents[1] / "corpus").glob("*.log*"))
SHARED_LOGS = sorted((HERE.parents[3] / "shared/corpus").glob("*.log"))
CASES = tomllib.loads((HERE / "cases.toml").read_text(encoding="utf-8"))["case"]
HARMLESS = (HERE / "harmless.txt").read_text(encoding="utf-8").splitlines()
COMMAND = [sys.executable, "-m", "fitserve"]


def redacted(data: bytes, **options: Any) -> bytes:
    """The bytes as a stream with a redactor of their own gives them."""
    out = io.BytesIO()
    Redactor(**options).stream(io.BytesIO(data), out)
    return out.getvalue()


def log_bytes(path: Path) -> bytes:
    """A log of a corpus, unpacked and as UTF-8."""
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    return data.decode("utf-16").encode() if data.startswith((b"\xff\xfe", b"\xfe\xff")) else data


@pytest.mark.parametrize("case", CASES, ids=[case["text"][:60] for case in CASES])
def test_cases(case: dict[str, str]) -> None:
    """Each text becomes what the table says, and nothing further the second time."""
    out = Redactor().text(case["text"])

    assert case.get("out", case["text"]) == out
    assert Redactor().text(out) == out


@pytest.mark.parametrize("line", HARMLESS, ids=[line[:60] for line in HARMLESS])
def test_harmless_lines_stay(line: str) -> None:
    """Lines of vLLM, drivers, kernels and Kubernetes with much that looks private and is not."""
    assert line == Redactor().text(line)


def test_enough_is_planted() -> None:
    """At least 2,000 secrets of at least 40 kinds are looked for."""
    assert len(KINDS) >= 40
    assert len(list(planted(1, 40))) >= 2000


def test_no_planted_secret_is_left() -> None:
    """None of the secrets is left, whole or as a stretch of ten characters, each line by itself."""
    left = [(kind, line) for kind, secret, line in planted(1, 40) if _is_in(secret, Redactor().text(line))]

    assert [] == left


def test_no_planted_secret_is_left_in_a_log() -> None:
    """The same in one log, in which lines of a server stand between them."""
    found = list(planted(3, 40))
    ordinary = "(EngineCore_DP0 pid=97) INFO 07-19 22:14:12 [core.py:97] GPU KV cache size: 76,304 tokens\n"
    text = "".join(f"{line}\n{ordinary}" for _, _, line in found)

    out = redacted(text.encode()).decode()

    assert [] == [(kind, secret) for kind, secret, _ in found if _is_in(secret, out)]
    assert text.count(ordinary) == out.count(ordinary)


def test_no_one_and_no_place_is_left() -> None:
    """No user, host, address or folder of 1,000 lines is left, each line by itself."""
    found = list(people_and_places.lines(1, 40))
    left = [line for private, line in found if any(value in Redactor().text(line) for value in private)]

    assert len(found) >= 1000
    assert [] == left


def _is_in(secret: str, text: str) -> bool:
    stretches = [secret[at : at + 10] for at in range(len(secret) - 9)] if len(secret) > 16 else [secret]
    return any(stretch in text for stretch in stretches)


@pytest.mark.parametrize("name", ["PRIVATE KEY", "RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "EC PRIVATE KEY"])
@pytest.mark.parametrize("prefix", ["", "vllm-1  | ", "      ", "2026-01-16T19:04:51.736501814Z stderr F "])
def test_private_keys_over_several_lines(name: str, prefix: str) -> None:
    """The body of a key is gone, line by line; the marks and the lines around it stay."""
    key = private_key(random.Random(5), name)
    text = "".join(f"{prefix}{line}\n" for line in ["before", *key, "GPU KV cache size: 76,304 tokens"])

    out = Redactor().text(text)

    assert [] == [line for line in key[1:-1] if line in out]
    assert [f"{prefix}before", f"{prefix}{key[0]}"] == out.splitlines()[:2]
    assert [f"{prefix}{key[-1]}", f"{prefix}GPU KV cache size: 76,304 tokens"] == out.splitlines()[-2:]


@pytest.mark.parametrize("newline", ["\\n", "\\\\n", "\\r\\n"])
def test_private_keys_in_one_line(newline: str) -> None:
    """A key whose line ends are escaped, as JSON has it."""
    key = private_key(random.Random(6))

    out = Redactor().text(f'{{"private_key": "{newline.join(key)}{newline}", "client": 5}}')

    assert [] == [line for line in key[1:-1] if line in out]
    assert out.endswith('"client": 5}')


def diagnosis(data: bytes) -> Diagnosis:
    """The diagnosis of a log."""
    return diagnose_lines(read_candidates(io.BytesIO(data), needles()))


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, bytes, bytes]]:
    """Each log of the corpora, before and after."""
    return [(path.name, log_bytes(path), redacted(log_bytes(path))) for path in [*OWN_LOGS, *SHARED_LOGS]]


def test_the_diagnosis_is_the_same(pairs: list[tuple[str, bytes, bytes]]) -> None:
    """Everything but quoted text is what it was: cause, stage, lines, numbers, budget, advice."""
    for name, before, after in pairs:
        one, other = (_without_texts(msgspec.to_builtins(diagnosis(data))) for data in (before, after))

        assert one == other, name


def _without_texts(answer: dict[str, Any]) -> dict[str, Any]:
    """A diagnosis without what it quotes: the message, the settings, the evidence's text, paths in its advice."""
    for evidence in answer["evidence"]:
        del evidence["text"]
    for advice in answer["advice"]:
        if isinstance(advice["from"], str):
            del advice["from"]
    return {key: value for key, value in answer.items() if key not in ("message", "settings")}


def test_twice_is_once(pairs: list[tuple[str, bytes, bytes]]) -> None:
    """A redacted log stays as it is."""
    assert [] == [name for name, _, after in pairs if redacted(after) != after]


PRIVATE_WORD = (
    "/home/",
    "/srv/",
    "/mnt/",
    "10.",
    "172.",
    "192.168.",
    "http",
    "@",
    "mkessler",
    "lindqvist",
    "_TOKEN=",
    "_KEY=",
    "GPU-",
    "MIG-",
    "s3://",
)
"""What a word of the corpora holds where it is private; everything else there is harmless."""


def test_harmless_words_stay(pairs: list[tuple[str, bytes, bytes]]) -> None:
    """At most one word in 200 that is not private is changed."""
    words = changed = 0
    for _, before, after in pairs:
        both = before.decode(errors="replace").split(), after.decode(errors="replace").split()
        assert len(both[0]) == len(both[1])
        for old, new in zip(*both, strict=True):
            if not any(sign in old for sign in PRIVATE_WORD):
                words += 1
                changed += old != new

    assert words > 500_000
    assert changed <= 0.005 * words


def test_a_block_at_a_time_is_the_whole() -> None:
    """A text of several blocks: names learned in one are hidden in the next, and no line is lost."""
    line = "INFO 07-19 22:14:12 [core.py:97] request 7 of mkessler took 0.31 s\n"
    text = ("USER=mkessler\n" + line * (3 * BLOCK_BYTES // len(line))).encode()

    out = redacted(text)

    assert b"mkessler" not in out
    assert text.count(b"\n") == out.count(b"\n")


def test_endless_lines_are_cut() -> None:
    """A line without an end needs no more memory than a block, and a key in it is gone."""
    out = redacted(b"x" * (6 * BLOCK_BYTES) + b" HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyzabcdefgh\n")

    assert len(out) < 3 * BLOCK_BYTES
    assert b"abcdefghijklmnop" not in out


def test_a_cut_key_ends_with_its_text() -> None:
    """A key whose end is missing does not reach into the next text."""
    redactor = Redactor()
    redactor.text("\n".join(private_key(random.Random(7))[:3]))

    assert "abcdefgh" == redactor.text("abcdefgh")


def test_pseudonyms_are_bounded() -> None:
    """So many values of a kind are told apart; those beyond share one pseudonym of the same form."""
    values = range(MOST_DISTINCT + 3)
    text = "".join(f" 10.{at >> 16}.{at >> 8 & 255}.{at & 255}\n" for at in values)

    out = redacted(text.encode()).decode().split()

    assert len(values) == len(out)
    assert MOST_DISTINCT == len(set(out[:MOST_DISTINCT]))
    assert 1 == len(set(out[MOST_DISTINCT:]))
    assert {"198"} == {line.partition(".")[0] for line in out}


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=400))
def test_any_bytes_pass(data: bytes) -> None:
    """Whatever the bytes are, nothing is raised, and lines stay lines."""
    out = redacted(data)

    if not data.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        assert data.count(b"\n") == out.count(b"\n")


PIECES = [case["text"] for case in CASES] + [line for _, _, line in planted(9, 2)]


@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from(PIECES), max_size=6), st.sampled_from([" ", "\n", ", ", "\t", '"', "|"]))
def test_twice_is_once_for_mixtures(pieces: list[str], between: str) -> None:
    """However such lines are put together, a second pass changes nothing."""
    once = Redactor().text(between.join(pieces))

    assert Redactor().text(once) == once


def test_values_and_text_have_the_same_pseudonyms() -> None:
    """One redactor for a log and a record: a host is the same one in both; numbers and other values stay."""
    redactor = Redactor()
    text = redactor.text("/home/mkessler/x on http://gpu-node07:8000")
    value = redactor.value(
        {
            "argv": ["vllm", "serve", "Qwen/Qwen3-8B", "--api-key", "tiger", "--port", "8000"],
            "env": {"DB_PASSWORD": "tiger7", "VLLM_USE_V1": "1", "ACME_TEAM": "blue falcon"},
            "command": "HF_TOKEN=zebra-9921 VLLM_USE_V1=1 vllm serve Qwen/Qwen3-8B",
            "url": "http://gpu-node07:8000",
            "owner": "mkessler",
            "bytes": 131072,
            "share": 0.9,
            "none": None,
        }
    )

    assert "/home/user-1/dir-1 on http://host-1:8000" == text
    assert {
        "argv": ["vllm", "serve", "Qwen/Qwen3-8B", "--api-key", "secret-1", "--port", "8000"],
        "env": {"DB_PASSWORD": "password-1", "VLLM_USE_V1": "1", "ACME_TEAM": "env-value-2"},
        "command": "HF_TOKEN=secret-2 VLLM_USE_V1=1 vllm serve Qwen/Qwen3-8B",
        "url": "http://host-1:8000",
        "owner": "user-1",
        "bytes": 131072,
        "share": 0.9,
        "none": None,
    } == value


def test_models_are_hidden_where_that_is_asked() -> None:
    """Names of models go, those of well-known makers stay."""
    text = "vllm serve acme/orion-7b --tokenizer Qwen/Qwen3-8B\nmodel='acme/orion-7b' is orion-7b\n"

    assert text.encode() == redacted(text.encode())
    assert b"vllm serve model-1 --tokenizer Qwen/Qwen3-8B\nmodel='model-1' is model-2\n" == redacted(
        text.encode(), hide_models=True
    )


def test_own_names_are_hidden() -> None:
    """What this machine is called is hidden wherever it stands alone; ordinary words never are."""
    redactor = Redactor(own_names=[("host", "zeppelin4"), ("user", "root"), ("host", "engine")])

    assert "host-1 said: root started the engine" == redactor.text("zeppelin4 said: root started the engine")


def run(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], input=stdin, capture_output=True, timeout=120, check=False
    )


def test_command(tmp_path: Path) -> None:
    """A whole log, as it comes out, and the kinds that were met."""
    log = HERE / "serve.log"
    done = run("redact", log, "--show-redactions")

    assert 0 == done.returncode
    assert (HERE / "serve.redacted.log").read_text() == done.stdout.decode()
    assert (HERE / "serve.redactions.txt").read_text() == done.stderr.decode()

    written = run("redact", "-", "-o", tmp_path / "out", stdin=gzip.compress(log.read_bytes()))
    assert 0 == written.returncode
    assert done.stdout == (tmp_path / "out").read_bytes()

    answer = json.loads(run("redact", "--json", log).stdout)
    assert {"schema": 1, "kind": "redaction", "text": done.stdout.decode()} == {
        key: answer[key] for key in ("schema", "kind", "text")
    }
    assert {"kind": "ip", "distinct": 2, "count": 3} in answer["redactions"]


def test_command_refuses(tmp_path: Path) -> None:
    """No file is 3; a file into itself is 2, and it is still there."""
    log = tmp_path / "a.log"
    log.write_text("text\n")

    assert 3 == run("redact", tmp_path / "missing").returncode
    assert 2 == run("redact", log, "-o", log).returncode
    assert "text\n" == log.read_text()


def test_a_written_diagnosis_is_redacted(tmp_path: Path) -> None:
    """What -o writes is for others; the terminal's answer is the user's own, unless it is asked for."""
    log = HERE.parents[1] / "corpus/disk-0191-quota.log"

    shown = run("diagnose", log, "--json").stdout.decode()
    asked = run("diagnose", log, "--json", "--redact").stdout.decode()
    run("diagnose", log, "--json", "-o", tmp_path / "for-others")
    run("diagnose", log, "--json", "-o", tmp_path / "as-it-is", "--no-redact")

    assert "/home/tessa" in shown
    assert "tessa" not in asked
    assert asked == (tmp_path / "for-others").read_text()
    assert shown == (tmp_path / "as-it-is").read_text()


def test_the_table_is_the_detectors() -> None:
    """The patterns taken from bc-detect-secrets are those of the installed release."""
    pytest.importorskip("detect_secrets")
    from detectors import detectors

    table = tomllib.loads((HERE.parents[2] / "src/fitserve/report/redact/detect_secrets.toml").read_text())

    assert detectors() == table["detector"]
