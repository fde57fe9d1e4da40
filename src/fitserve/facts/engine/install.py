"""A private engine: installed once, repaired where it is not whole, removed on request."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fitserve.errors import MachineError
from fitserve.facts.engine.health import STAMP_NAME, engine_state, installed_distributions, write_stamp
from fitserve.facts.engine.lock import held_lock
from fitserve.facts.engine.pip import Report, Step, clean_environment, run_pip
from fitserve.facts.engine.recipe import Recipe, engine_folder, engine_python
from fitserve.units import gib

IMPORT_SECONDS = 300.0


def ensure_engine(recipe: Recipe, root: Path, report: Report, index_urls: tuple[str, ...] = ()) -> Path:
    """The Python of a whole engine; it is installed or repaired where needed.

    Only a finished, whole installation is used; anything else is made anew (pip keeps its downloads). Two callers at once: one
    installs, the other waits.

    Args:
        recipe: what is in it.
        root: the folder of the private engines; made where missing.
        report: is told each step.
        index_urls: further package indexes for pip.

    Raises:
        MachineError: the disk is too full or cannot be written, Python has no venv, pip failed, or the engine cannot be imported.
    """
    folder = engine_folder(recipe, root)
    if engine_state(folder, recipe).state == "ready":
        return engine_python(folder)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with held_lock(
            lock_path(folder), lambda: report(Step(phase="waiting: another process changes this engine"))
        ) as lock:
            state = engine_state(folder, recipe)
            if state.state == "broken":
                report(Step(phase="repairing the engine", what=state.reason))
            if state.state != "ready":
                _install(recipe, folder, report, index_urls, lock)
    except OSError as error:
        raise MachineError(
            f"the engine cannot be installed: {error.strerror}",
            where=str(error.filename or folder),
            hint="name another folder: FITSERVE_CACHE_DIR",
        ) from error
    return engine_python(folder)


def remove_engine(recipe: Recipe, root: Path, report: Report) -> bool:
    """Delete the engine's folder; False where there is none.

    Raises:
        MachineError: it cannot be deleted.
    """
    folder = engine_folder(recipe, root)
    if not folder.exists():
        return False
    try:
        with held_lock(
            lock_path(folder), lambda: report(Step(phase="waiting: another process changes this engine"))
        ):
            _delete(folder)
    except OSError as error:
        raise MachineError(
            f"the engine cannot be removed: {error.strerror}", where=str(error.filename or folder)
        ) from error
    return True


def lock_path(folder: Path) -> Path:
    """The lock file beside an engine's folder."""
    return folder.with_name(f"{folder.name}.lock")


def _install(recipe: Recipe, folder: Path, report: Report, index_urls: tuple[str, ...], lock: int) -> None:
    _delete(folder)
    _check_disk(recipe, folder.parent)
    report(Step(phase=f"installing {recipe.name}", what=f"into {folder}"))
    report(Step(phase="making a virtual environment"))
    _make_venv(folder)
    python = engine_python(folder)

    def count() -> int:
        return len(installed_distributions(folder))

    # The index may carry a password: in a file it is not shown by `ps`.
    with tempfile.NamedTemporaryFile("w", prefix="fitserve-", suffix=".txt") as wanted:
        wanted.write("".join(f"--extra-index-url {url}\n" for url in index_urls))
        wanted.write("".join(f"{requirement}\n" for requirement in recipe.requirements))
        wanted.flush()
        arguments = ["install", "--no-user", "--progress-bar", "off", "-r", wanted.name]
        run_pip(python, arguments, report=report, count_installed=count, held_fd=lock)
    if recipe.unwanted:
        run_pip(
            python,
            ["uninstall", "--yes", *recipe.unwanted],
            report=report,
            count_installed=count,
            held_fd=lock,
        )
    report(Step(phase="trying to import it"))
    _check_imports(python, recipe)
    write_stamp(folder, recipe)


def _delete(folder: Path) -> None:
    """Delete the stamp first: a half-deleted engine is not trusted."""
    (folder / STAMP_NAME).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


def _check_disk(recipe: Recipe, root: Path) -> None:
    free_bytes = shutil.disk_usage(root).free
    if free_bytes < recipe.disk_bytes:
        raise MachineError(
            f"the engine needs {gib(recipe.disk_bytes)} of disk, {gib(free_bytes)} is free",
            where=str(root),
            hint="free space, or name a folder on a larger disk: FITSERVE_CACHE_DIR",
        )


def _make_venv(folder: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-I", "-m", "venv", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment(),
    )
    if made.returncode:
        said = (made.stderr + made.stdout).strip().splitlines() or ["it said nothing"]
        raise MachineError(
            f"python cannot make a virtual environment: {said[0]}",
            where=sys.executable,
            hint="install this Python's venv and ensurepip (Debian and Ubuntu: the package python3-venv)",
        )


def _check_imports(python: Path, recipe: Recipe) -> None:
    """Import what the recipe names, in the engine's own Python and away from the user's folder."""
    code = "".join(f"import {module}\n" for module in recipe.modules)
    try:
        tried = subprocess.run(
            [str(python), "-I", "-c", code],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=IMPORT_SECONDS,
            env={**clean_environment(), "CUDA_VISIBLE_DEVICES": ""},
            cwd=os.sep,
        )
    except subprocess.TimeoutExpired as error:
        raise MachineError(
            f"the engine was not imported within {IMPORT_SECONDS:.0f} s", where=str(python)
        ) from error
    if tried.returncode:
        said = (tried.stderr + tried.stdout).strip().splitlines() or [f"exit code {tried.returncode}"]
        raise MachineError(
            f"the engine cannot be imported: {said[-1]}",
            where=str(python),
            hint="an index with CPU builds of torch may be missing: --extra-index-url URL; or this CPU is not supported",
        )
