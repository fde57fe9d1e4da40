"""(o) Room for a connection a request: the soft limit of open files, often 1,024, is below what a load needs."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def more_open_files() -> Iterator[None]:
    """The limit of open files is the highest that this process may set, until left; where there is none, nothing is done."""
    try:
        import resource
    except ImportError:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS names an unlimited hard limit and refuses it.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
