"""A record as an HTML page."""

from functools import cache
from typing import Any

from fitserve.report.html.extras import Extras
from fitserve.report.html.view import view_of
from fitserve.report.record import Record, storable
from fitserve.report.record_words import visible


def render_record_html(record: Record, extras: Extras | None = None) -> str:
    """The run as one HTML file.

    Args:
        record: any record; what may not leave has been taken out before.
        extras: what stands on the page beside the record.
    """
    page: str = _template().render(view=view_of(storable(record), extras or Extras()))
    return page


@cache
def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: Any) -> Any:
        return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=PackageLoader("fitserve.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2")
