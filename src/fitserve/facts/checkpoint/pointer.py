"""Git LFS pointers: the few lines that a clone without Git LFS leaves in the place of a large file.

**Source**: the pointer format of Git LFS, version 1 (``docs/spec.md``).
"""

from pathlib import Path

from fitserve.errors import InputError

_START = b"version https://git-lfs.github.com/spec/"
_LARGEST_BYTES = 1024


def refuse_pointer(path: Path) -> None:
    """Look whether a file is there itself.

    Raises:
        InputError: a pointer stands in its place, or it cannot be read.
    """
    try:
        if not path.is_file() or path.stat().st_size >= _LARGEST_BYTES:
            return
        with path.open("rb") as stream:
            found = stream.read(len(_START))
    except OSError as error:
        raise InputError(f"it cannot be read: {error.strerror}", where=str(path)) from error
    if found == _START:
        raise InputError(
            "it is a Git LFS pointer: the file itself was not downloaded",
            where=str(path),
            hint="fetch it: git lfs pull in the model's folder, or hf download",
        )
