"""The house keeps its direction: a room imports only from the rooms left of it."""

import ast
from pathlib import Path

import fitserve

ROOMS = [
    ["units", "errors"],
    ["facts"],
    ["memory"],
    ["diagnose"],
    ["plan", "advise"],
    ["trial"],
    ["verify"],
    ["report"],
    ["store"],
    ["fix"],
    ["demo"],
    ["page", "agent", "cluster", "simulator"],
    ["cli"],
]
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
SOURCE = Path(fitserve.__file__).parent


def imported_rooms(module: Path) -> set[str]:
    """The rooms that a module imports, at any place in it."""
    names: list[str] = []
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("fitserve.")} & LEVEL.keys()


def test_imports_point_left() -> None:
    """No module imports from a room to its right."""
    wrong = []
    for module in SOURCE.rglob("*.py"):
        room = module.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room in LEVEL:
            wrong += [
                f"{module.relative_to(SOURCE)} imports {other}"
                for other in imported_rooms(module)
                if other != room and LEVEL[other] >= LEVEL[room]
            ]

    assert wrong == []


def test_the_simulator_stands_alone() -> None:
    """It shares nothing with what it tests: it imports no room but units and errors, and only the command line imports it."""
    wrong = []
    for module in SOURCE.rglob("*.py"):
        room, rooms = module.relative_to(SOURCE).parts[0].removesuffix(".py"), imported_rooms(module)
        if room == "simulator" and rooms - {"simulator", "units", "errors"}:
            wrong.append(str(module))
        if room not in ("simulator", "cli") and "simulator" in rooms:
            wrong.append(str(module))

    assert wrong == []


def test_every_room_has_its_place() -> None:
    """Each top-level module and package of the source is named in the order of rooms."""
    found = {
        path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()
    }

    assert found - {"__init__", "__main__", "__pycache__"} <= LEVEL.keys()


def test_vllm_is_never_imported() -> None:
    """The tool's own process never imports vLLM or torch; helper scripts for vLLM's Python live apart."""
    for module in SOURCE.rglob("*.py"):
        if module.parent.name == "in_engine":
            continue
        text = module.read_text(encoding="utf-8")
        for name in ("vllm", "torch"):
            assert f"\nimport {name}" not in text, module
            assert f"\nfrom {name}" not in text, module
