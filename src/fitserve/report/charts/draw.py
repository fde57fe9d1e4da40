"""A Vega-Lite spec as SVG, without a browser and without a network."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from fitserve.report.text import clean

EXTRA = "pip install 'fitserve[charts]'"

WIDE_PX = 920
PHONE_PX = 296

_LONG_FRACTION = re.compile(r"(?<=\d)(\.\d\d)\d+")
"""Digits of a coordinate beyond a hundredth of a pixel; no word of a chart has as many."""

_ROOT = re.compile(r'<svg\b[^>]*?width="(?P<width>[\d.]+)" height="(?P<height>[\d.]+)"[^>]*>')


class Picture(msgspec.Struct, frozen=True):
    """An SVG without its root, which the page makes.

    Attributes:
        box: the root's ``viewBox``.
        marks: what is inside.
    """

    box: str
    marks: str


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """A chart for a page.

    Attributes:
        name: an id that no other drawing of the page has.
        title: what it shows, in a few words.
        words: what is to be seen in it, for who cannot see it.
        wide: the SVG for a desk; None where nothing can draw here.
        phone: the SVG for a phone; None likewise.
    """

    name: str
    title: str
    words: str
    wide: Picture | None = None
    phone: Picture | None = None


def can_draw() -> bool:
    """True where vl-convert is installed."""
    from importlib.util import find_spec

    return find_spec("vl_convert") is not None


def draw(name: str, title: str, words: str, spec: Callable[[int], dict[str, Any]]) -> Drawing:
    """A chart for a desk and for a phone; without pictures where nothing can draw here.

    Args:
        name: an id that no other drawing of the page has.
        title: what it shows.
        words: what is to be seen in it.
        spec: the Vega-Lite spec for a width in pixels.
    """
    if not can_draw():
        return Drawing(name=name, title=title, words=words)
    wide, phone = (picture(spec(width_px)) for width_px in (WIDE_PX, PHONE_PX))
    return Drawing(name=name, title=title, words=words, wide=wide, phone=phone)


def picture(spec: dict[str, Any]) -> Picture:
    """The spec as SVG; what is no part of the spec is never fetched.

    Raises:
        ModuleNotFoundError: vl-convert is not installed.
        ValueError: the spec is none.
    """
    import vl_convert

    text: str = vl_convert.vegalite_to_svg(_drawable(spec), allowed_base_urls=[])
    root = _ROOT.search(text)
    if root is None:
        raise ValueError("a drawing has no size")
    marks = _LONG_FRACTION.sub(r"\1", text[root.end() : text.rindex("</svg>")])
    return Picture(f"0 0 {root['width']} {root['height']}", marks)


def _drawable(value: Any) -> Any:
    """The spec with texts that XML can hold: vl-convert 1.9 ends the whole process at a control character."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {name: _drawable(item) for name, item in value.items()}
    return [_drawable(item) for item in value] if isinstance(value, list) else value
