"""The measurements: ``python -m bench`` lists them, ``python -m bench NAME`` runs one."""

import ast
import runpy
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def measurements() -> dict[str, str]:
    """Each measurement's name and the first line of its docstring."""
    found = {}
    for path in sorted(FOLDER.glob("[!_]*.py")):
        words = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        found[path.stem] = words.partition("\n")[0]
    return found


def main() -> int:
    """List, or run."""
    known = measurements()
    if len(sys.argv) == 1:
        width = max(map(len, known))
        for name, words in known.items():
            print(f"python -m bench {name:<{width}}  {words}")
        return 0
    name = sys.argv[1]
    if name not in known:
        print(f"error: no measurement is called {name}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    sys.argv = sys.argv[1:]
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
