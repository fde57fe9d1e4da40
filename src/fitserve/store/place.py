"""Where the journal lies, as the environment says it."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from fitserve.errors import UsageError

URL_VARIABLE = "FITSERVE_DB"
FOLDER_VARIABLE = "FITSERVE_DATA_DIR"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A database: a SQLite file, or a server's URL.

    Attributes:
        path: the file; None for a server.
        url: the SQLAlchemy URL; None for a file.
        shown: the place in words, without a password.
    """

    path: Path | None = None
    url: str | None = None
    shown: str


def journal_place(environ: Mapping[str, str]) -> Place:
    """The database that ``FITSERVE_DB`` names, or ``journal.db`` in ``FITSERVE_DATA_DIR`` or the user's data folder.

    Raises:
        UsageError: ``FITSERVE_DB`` is no database URL.
    """
    url = environ.get(URL_VARIABLE)
    if url:
        return _place_of_url(url)
    return file_place(_data_folder(environ) / "journal.db")


def inbox_folder(environ: Mapping[str, str]) -> Path:
    """Where runs are left for whoever opens the journal next."""
    return _data_folder(environ) / "inbox"


def _data_folder(environ: Mapping[str, str]) -> Path:
    return Path(environ.get(FOLDER_VARIABLE) or _user_folder()).expanduser()


def file_place(path: Path) -> Place:
    """A SQLite file."""
    return Place(path=path, shown=str(path))


def _user_folder() -> str:
    from platformdirs import user_data_dir

    return user_data_dir("fitserve", appauthor=False)


def _place_of_url(text: str) -> Place:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(text)
    except ArgumentError as error:
        raise UsageError(
            f"{URL_VARIABLE} is no database URL",
            hint="write it as postgresql+psycopg://user@host/database or sqlite:////folder/file.db",
        ) from error
    if url.get_backend_name() != "sqlite":
        return Place(url=text, shown=url.render_as_string(hide_password=True))
    if not url.database or url.database == ":memory:":
        raise UsageError(
            f"{URL_VARIABLE} names a SQLite database without a file: {text}",
            hint="write it as sqlite:////folder/file.db",
        )
    return file_place(Path(url.database).expanduser())
