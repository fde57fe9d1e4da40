"""A bundle gives the same report elsewhere; what was damaged, changed or made to harm is refused."""

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fitserve.errors import FitserveError, InputError
from fitserve.report.bundle import MOST_BYTES, MOST_FILES, is_allowed
from fitserve.report.bundle_read import read_bundle
from fitserve.report.bundle_write import Content, Told, write_bundle
from fitserve.report.html.extras import Frontier
from fitserve.report.record import Record
from fitserve.store.journal import open_journal
from tests.report.html.whole import whole_record

LOG = (
    b"INFO 06-03 12:00:00 [utils.py:261] non-default args: {'model': 'org/model-8b', 'api_key': ['sk-0a1b2c3d4e5f60718293a4b5']}\n"
    b'  File "/home/mkessler/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py", line 9, in step\n'
)
PRIVATE = (b"mkessler", b"sk-0a1b2c3d4e5f60718293a4b5")

Files = dict[str, bytes]


def fitserve(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run the tool with its journal in the folder."""
    return subprocess.run(
        [sys.executable, "-c", "from fitserve.cli import main; main()", *arguments],
        env={**os.environ, "FITSERVE_DATA_DIR": str(folder)},
        capture_output=True,
        check=False,
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal with one run, whose command, environment and log hold private things."""
    folder = tmp_path_factory.mktemp("home")
    journal = open_journal({"FITSERVE_DATA_DIR": str(folder)})
    path = folder / "serve.log"
    path.write_bytes(LOG)
    digest = str(journal.keep_log(path))
    record = whole_record()
    command = [*record.command, "--api-key", PRIVATE[1].decode()]
    notes = ["read from /home/mkessler/serve.log"]
    trials = [msgspec.structs.replace(trial, notes=notes) for trial in record.trials]
    journal.save(msgspec.structs.replace(record, command=command, logs={1: digest, 2: digest}, trials=trials))
    return folder


@pytest.fixture(scope="module")
def bundle(home: Path) -> Path:
    """The run as a bundle."""
    path = home / "run.zip"
    done = fitserve(home, "report", "last", "--bundle", str(path))
    assert (0, b"") == (done.returncode, done.stdout), done.stderr
    return path


def files_of(path: Path) -> Files:
    """Everything in a bundle."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(path: Path, files: Files, *, listed: bool = True) -> Path:
    """Write a zip file; with ``listed`` its manifest is made to fit."""
    if listed:
        manifest = json.loads(files["manifest.json"])
        manifest["files"] = [
            {"name": name, "size_bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
            for name, text in files.items()
            if name != "manifest.json"
        ]
        files = {**files, "manifest.json": json.dumps(manifest).encode()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


@pytest.mark.parametrize("form", ["text", "json", "md", "html"])
def test_a_bundle_gives_the_same_report_elsewhere(
    home: Path, bundle: Path, tmp_path: Path, form: str
) -> None:
    """On a machine without the journal the report is the same, byte for byte, in every format."""
    here = fitserve(home, "report", "last", "--format", form)
    elsewhere = fitserve(tmp_path / "new", "report", str(bundle), "--format", form)

    assert (0, 0) == (here.returncode, elsewhere.returncode)
    assert _plain(here.stdout) == _plain(elsewhere.stdout)
    assert not (tmp_path / "new").exists()


def _plain(page: bytes) -> bytes:
    """Without the line of what was hidden: in a bundle the logs count as well."""
    return re.sub(rb"<p>redacted: .*?</p>\n", b"", page)


def test_a_bundle_has_the_page_that_is_in_it(bundle: Path, tmp_path: Path) -> None:
    """Opening a bundle gives its page again, with what was hidden where it was made."""
    page = fitserve(tmp_path, "report", str(bundle), "--format", "html").stdout

    assert files_of(bundle)["report.html"].rstrip() == page.rstrip()
    assert b"<p>redacted: " in page


def test_a_record_of_a_younger_fitserve_is_refused(bundle: Path, tmp_path: Path) -> None:
    """Its fields may mean something else, whatever the manifest's schema is."""
    files = files_of(bundle)
    record = {**json.loads(files["record.json"]), "schema": 2}
    path = packed(tmp_path / "young.zip", {**files, "record.json": json.dumps(record).encode()})

    with pytest.raises(InputError, match=r"record\.json cannot be read: its schema is 2, .*upgrade fitserve"):
        read_bundle(path)


@pytest.mark.parametrize("levels", [65, 400])
@pytest.mark.parametrize("opened", ["[", '{"a":'])
def test_a_deep_record_is_refused(bundle: Path, tmp_path: Path, levels: int, opened: str) -> None:
    """Values within values until Python's stack is full are no run."""
    files = files_of(bundle)
    deep = opened * levels + "1" + {"[": "]"}.get(opened, "}") * levels
    text = files["record.json"].replace(b'"environment":{', f'"environment":{{"deep":{deep},'.encode(), 1)
    path = packed(tmp_path / "deep.zip", {**files, "record.json": text})

    with pytest.raises(InputError, match=r"deep|recursion"):
        read_bundle(path)


def test_a_pipe_is_no_bundle(tmp_path: Path) -> None:
    """Nobody may ever write to it: it is not waited for."""
    path = tmp_path / "pipe.zip"
    os.mkfifo(path)

    with pytest.raises(InputError, match="a bundle is a file"):
        read_bundle(path)


def test_a_bundle_holds_nothing_private(bundle: Path) -> None:
    """Neither the user's name nor the key is in any of its files, and the manifest says how much was hidden."""
    files = files_of(bundle)
    manifest = json.loads(files["manifest.json"])

    assert {
        "manifest.json",
        "record.json",
        "environment.json",
        "frontier.json",
        "report.html",
        "logs/trial-1.log",
        "logs/trial-2.log",
    } == set(files)
    assert [] == [name for name, text in files.items() for word in PRIVATE if word in text]
    assert manifest["redacted"]
    assert 1 == manifest["redactions"]["user"][0]


def test_pseudonyms_are_the_same_in_record_and_logs(bundle: Path) -> None:
    """Whoever is user-1 in a log is user-1 in the record."""
    files = files_of(bundle)

    assert b"/home/user-1/" in files["logs/trial-1.log"]
    assert b"/home/user-1/serve.log" in files["record.json"]


def test_a_private_bundle_keeps_everything(home: Path, tmp_path: Path) -> None:
    """With --no-redact the logs are what they were, and opening such a bundle hides what is private, as for a run."""
    path = tmp_path / "all.zip"
    made = fitserve(home, "report", "last", "--bundle", str(path), "--no-redact")
    raw = fitserve(tmp_path, "report", str(path), "--log", "1", "--no-redact")
    hidden = fitserve(tmp_path, "report", str(path), "--log", "1")

    assert b"redacted" not in made.stderr
    assert LOG == raw.stdout
    assert [] == [word for word in PRIVATE if word in hidden.stdout]


def test_the_same_run_gives_the_same_bundle(home: Path, bundle: Path, tmp_path: Path) -> None:
    """A bundle is made again byte for byte."""
    again = tmp_path / "again.zip"
    fitserve(home, "report", "last", "--bundle", str(again))

    assert bundle.read_bytes() == again.read_bytes()


def without(name: str) -> Callable[[Files], Files]:
    """The files but one."""
    return lambda files: {key: text for key, text in files.items() if key != name}


def also(name: str, text: bytes = b"x") -> Callable[[Files], Files]:
    """The files and one more, or in place of one."""
    return lambda files: {**files, name: text}


def manifest_with(**parts: object) -> Callable[[Files], Files]:
    """The files, with other words in the manifest."""
    return lambda files: {
        **files,
        "manifest.json": json.dumps({**json.loads(files["manifest.json"]), **parts}).encode(),
    }


@pytest.mark.parametrize(
    ("change", "listed", "words"),
    [
        (also("logs/trial-1.log", b"other"), False, "logs/trial-1.log is not what the manifest says"),
        (also("record.json", b"{}"), False, "record.json is not what the manifest says"),
        (also("logs/trial-1.log", LOG * 9), False, "logs/trial-1.log is larger than it may be"),
        (also("logs/trial-9.log"), False, "its files are not those of its manifest"),
        (without("logs/trial-1.log"), False, "its files are not those of its manifest"),
        (without("record.json"), True, "record.json is missing"),
        (without("manifest.json"), False, "it is no bundle: it has no manifest"),
        (also("record.json", b"{}"), True, "record.json cannot be read"),
        (also("record.json", b"[" * 100_000), True, "record.json cannot be read"),
        (also("manifest.json", b"not json"), False, "manifest.json cannot be read"),
        (
            manifest_with(schema=9),
            True,
            "the bundle has schema 9, and this fitserve knows up to 1: upgrade fitserve",
        ),
        (manifest_with(files=[]), False, "its files are not those of its manifest"),
        (also("../../etc/passwd"), True, "it holds '../../etc/passwd', which no bundle has"),
        (also("/etc/passwd"), True, "it holds '/etc/passwd', which no bundle has"),
        (also("logs/../../x.log"), True, "it holds 'logs/../../x.log', which no bundle has"),
        (also("logs\\..\\x.log"), True, "which no bundle has"),
        (also("logs/trial-1.log\n"), True, "which no bundle has"),
        (also("logs/trial-٣.log"), True, "which no bundle has"),
    ],
)
def test_a_changed_bundle_is_refused(
    bundle: Path, tmp_path: Path, change: Callable[[Files], Files], words: str, *, listed: bool
) -> None:
    """Whatever was changed, added or taken away ends with 3 and one error that names it; nothing is written anywhere."""
    path = packed(tmp_path / "changed.zip", change(files_of(bundle)), listed=listed)

    with pytest.raises(InputError, match=re.escape(words)):
        read_bundle(path)
    assert [path] == list(tmp_path.iterdir())


def test_a_bomb_is_refused_before_it_is_unpacked(bundle: Path, tmp_path: Path) -> None:
    """A file that says to be small and unpacks to a GiB is left at its first bytes beyond; one that says so is not begun."""
    files = files_of(bundle)
    manifest = json.loads(files["manifest.json"])
    liar = tmp_path / "liar.zip"
    with zipfile.ZipFile(liar, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, text in files.items():
            if name != "logs/trial-1.log":
                archive.writestr(name, text)
        with archive.open("logs/trial-1.log", "w") as log:
            for _ in range(1 << 6):
                log.write(bytes(1 << 20))
    for one in manifest["files"]:
        one["size_bytes"] = MOST_BYTES if one["name"].startswith("logs/") else one["size_bytes"]
    honest = packed(
        tmp_path / "honest.zip", {**files, "manifest.json": json.dumps(manifest).encode()}, listed=False
    )

    with pytest.raises(InputError, match=r"logs/trial-1\.log is larger than it may be"):
        read_bundle(liar)
    with pytest.raises(InputError, match="it would unpack to more than 1,024 MiB"):
        read_bundle(honest)


def test_too_many_files_are_refused(bundle: Path, tmp_path: Path) -> None:
    """A zip file of thousands of names is refused by their number."""
    files = files_of(bundle) | {f"logs/trial-{n}.log": b"" for n in range(1, MOST_FILES + 1)}

    with pytest.raises(InputError, match=r"it holds 1,0\d\d files"):
        read_bundle(packed(tmp_path / "many.zip", files))


def test_a_name_twice_is_refused(bundle: Path, tmp_path: Path) -> None:
    """Two files of one name cannot both be what the manifest says."""
    path = packed(tmp_path / "twice.zip", files_of(bundle))
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("record.json", b"{}")

    with pytest.raises(InputError, match="a name is in it twice"):
        read_bundle(path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_bundle_never_crashes(bundle: Path, tmp_path: Path, data: st.DataObject) -> None:
    """Cut anywhere, or with any bytes changed: it is the run that it was, or one error of ours."""
    whole = bytearray(bundle.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.zip"
    path.write_bytes(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
    code, found = 0, None
    try:
        found = read_bundle(path).record
    except FitserveError as error:
        code = error.exit_code

    assert (code, found) in [(3, None), (0, read_bundle(bundle).record)]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, b"error: the bundle cannot be read: No such file or directory"),
        (lambda path: path.mkdir(), b"error: the bundle cannot be read: Is a directory"),
        (
            lambda path: path.write_bytes(b"no zip file"),
            b"error: it is no whole bundle: File is not a zip file",
        ),
    ],
)
def test_what_is_no_bundle_ends_with_three(
    tmp_path: Path, make: Callable[[Path], object], words: bytes
) -> None:
    """A missing file, a folder and another file have one error each, and no traceback."""
    make(tmp_path / "x.zip")
    done = fitserve(tmp_path / "home", "report", str(tmp_path / "x.zip"))

    assert (3, b"") == (done.returncode, done.stdout)
    assert done.stderr.startswith(words)
    assert b"Traceback" not in done.stderr


def test_a_bundle_is_whole_or_not_there(tmp_path: Path) -> None:
    """Where a log turns out to be damaged half-way, or there is no folder, no file is left behind."""

    def damaged() -> io.BytesIO:
        raise InputError("damaged")

    content = Content(logs={1: damaged}, tell=lambda: Told(record=_bare(), frontier=Frontier(), page=""))
    with pytest.raises(InputError, match="damaged"):
        write_bundle(tmp_path / "x.zip", content)
    with pytest.raises(InputError, match="the bundle cannot be written: No such file"):
        write_bundle(tmp_path / "none" / "x.zip", msgspec.structs.replace(content, logs={}))

    assert [] == list(tmp_path.iterdir())


def _bare() -> Record:
    return Record(
        run="r", kind="run", started_utc="2026-12-01T00:00:00+00:00", fitserve_version="0", command=["vllm"]
    )


@given(st.text(alphabet="logs/trial-0123456789.\\\n\x00", max_size=24))
def test_no_allowed_name_leaves_a_folder(name: str) -> None:
    """What is allowed has no part that goes up, no root and no control character."""
    if is_allowed(name):
        assert ".." not in Path(name).parts
        assert not Path(name).is_absolute()
        assert name.isprintable()
