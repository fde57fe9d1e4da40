"""The page in a real browser: nothing overflows, everything can be read and reached, nothing is fetched.

Needs Chromium and its driver (``apt-get install chromium chromium-driver``); skipped where they are not.
"""

import json
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fitserve.report.html.page import render_record_html
from tests.report.html.whole import HOSTILE, whole_extras, whole_record

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(BROWSER is None or DRIVER is None, reason="Chromium or its driver is not installed"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

WIDTHS, SCHEMES, TEXTS = (1280, 360), ("light", "dark"), {"harmless": "", "hostile": HOSTILE}

CONTRASTS = """
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const rgba = colour => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data]; };
const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
const behind = element => { for (let at = element; at; at = at.parentElement) {
  const colour = rgba(getComputedStyle(at).backgroundColor); if (colour[3] === 255) return colour; } return [255, 255, 255, 255]; };
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement, style = getComputedStyle(element);
  if (!walker.currentNode.textContent.trim() || !element.getClientRects().length || ['TITLE', 'title', 'desc'].includes(element.tagName)) continue;
  const inDrawing = element.closest('svg');
  const text = light(rgba(inDrawing ? style.fill : style.color)), ground = light(behind(inDrawing ? inDrawing.parentElement : element));
  found.push([(Math.max(text, ground) + .05) / (Math.min(text, ground) + .05), walker.currentNode.textContent.trim().slice(0, 40)]);
}
return found;
"""
"""The contrast of every visible text with what is behind it. Source: WCAG 2.2, relative luminance and contrast ratio."""

OUTSIDE = """
return [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll') && !e.closest('svg') && !e.matches('.skip'))
  .filter(e => e.getClientRects().length && e.getBoundingClientRect().right > innerWidth + .5).map(e => e.outerHTML.slice(0, 80));
"""

CUT = """
return [...document.querySelectorAll('svg text')].filter(e => e.getClientRects().length && e.textContent).filter(e => {
  const text = e.getBoundingClientRect(), frame = e.closest('svg').getBoundingClientRect();
  return text.left < frame.left - 2 || text.right > frame.right + 2 || text.top < frame.top - 2 || text.bottom > frame.bottom + 2;
}).map(e => e.textContent);
"""
"""Words of a drawing that its frame cuts."""


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    """A browser without a window, that logs its console and its network."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of a run, and of a hostile one."""
    folder = tmp_path_factory.mktemp("pages")
    paths = {name: folder / f"{name}.html" for name in TEXTS}
    for name, path in paths.items():
        page = render_record_html(whole_record(TEXTS[name]), whole_extras(TEXTS[name]))
        path.write_text(page, encoding="utf-8")
    return paths


def shown(driver: Any, path: Path, width: int = 1280, scheme: str = "light", media: str = "screen") -> Any:
    """Open the page in a window of a width."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [feature]})
    driver.get(path.as_uri())
    return driver


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window(driver: Any, pages: dict[str, Path], width: int, text: str) -> None:
    """There is no sideways scrolling at a desk and on a phone, however long a word of a log is; tables scroll on their own."""
    shown(driver, pages[text], width)

    assert driver.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert [] == driver.execute_script(OUTSIDE)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_drawing_cuts_its_words(driver: Any, pages: dict[str, Path], width: int) -> None:
    """Labels, legends and phases stand inside their drawings, one drawing a chart is shown, and it fills its place."""
    shown(driver, pages["harmless"], width)
    sizes = driver.execute_script(
        "return [...document.querySelectorAll('figure')].map(f => [...f.querySelectorAll('svg')]"
        ".filter(s => s.getClientRects().length).map(s => s.getBoundingClientRect().width / f.clientWidth))"
    )

    assert [] == driver.execute_script(CUT)
    assert 6 == len(sizes)
    assert all(len(one) == 1 and one[0] > 0.9 for one in sizes)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_text_can_be_read(driver: Any, pages: dict[str, Path], scheme: str, width: int) -> None:
    """Each visible text has a contrast of 4.5 at least with what is behind it, in drawings too, light and dark."""
    shown(driver, pages["harmless"], width, scheme)
    driver.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    found = driver.execute_script(CONTRASTS)

    assert len(found) > 200
    assert [] == [one for one in found if one[0] < 4.5]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_part_of_a_drawing_can_be_told_from_the_page(
    driver: Any, pages: dict[str, Path], scheme: str
) -> None:
    """Each series has a contrast of 3 with the page; but for what is not requested, which is empty room."""
    shown(driver, pages["harmless"], scheme=scheme)
    names = [f"--series-{n}" for n in (1, 2, 3, 4, 5, 7, 8)]
    script = CONTRASTS[: CONTRASTS.index("const behind")] + (
        "const style = getComputedStyle(document.documentElement), of = name => light(rgba(style.getPropertyValue(name)));"
        "const ground = of('--surface');"
        "return arguments[0].map(name => [(Math.max(of(name), ground) + .05) / (Math.min(of(name), ground) + .05), name]);"
    )

    assert [] == [one for one in driver.execute_script(script, names) if one[0] < 3]


@pytest.mark.parametrize("text", TEXTS)
def test_nothing_is_fetched_and_nothing_complains(driver: Any, pages: dict[str, Path], text: str) -> None:
    """The page itself is all that is loaded; the console is empty; no script has run."""
    driver.get_log("performance")
    driver.get_log("browser")
    shown(driver, pages[text])
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]

    assert [pages[text].as_uri()] == [url for url in asked if not url.startswith("data:")]
    assert [] == driver.get_log("browser")
    assert 0 == driver.execute_script("return document.scripts.length")


def test_the_keyboard_reaches_everything(driver: Any, pages: dict[str, Path]) -> None:
    """Tab goes through the skip link, the links, the folds and the tables in the order of the page; each shows where it is."""
    from selenium.webdriver.common.keys import Keys

    shown(driver, pages["harmless"])
    body = driver.find_element("tag name", "body")
    wanted = driver.execute_script(
        "return [...document.querySelectorAll('a[href], summary, [tabindex]')].filter(e => e.checkVisibility()).length"
    )
    tops, outlines = [], []
    for _ in range(wanted):
        body.send_keys(Keys.TAB)
        body = driver.switch_to.active_element
        top, outline = driver.execute_script(
            "const e = document.activeElement; return [e.getBoundingClientRect().top + scrollY, getComputedStyle(e).outlineStyle]"
        )
        tops.append(top)
        outlines.append(outline)

    assert "none" not in outlines
    assert tops == sorted(tops)
    assert driver.execute_script("return !!document.activeElement.closest('section')")


def test_headings_and_landmarks_are_in_order(driver: Any, pages: dict[str, Path]) -> None:
    """One first heading, no level left out, each section named by its heading, every link inside leads to something."""
    shown(driver, pages["harmless"])
    levels = driver.execute_script(
        "return [...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])"
    )
    marks = driver.execute_script(
        "return ['header','nav','main','footer'].map(n => document.querySelectorAll(n).length)"
    )
    dead = driver.execute_script(
        "return [...document.querySelectorAll('nav a')].filter(a => !document.querySelector(a.getAttribute('href'))).length"
    )
    unnamed = driver.execute_script(
        "return [...document.querySelectorAll('section')].filter(s => !document.getElementById(s.getAttribute('aria-labelledby'))).length"
    )

    assert 1 == levels.count(1)
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert [1, 1, 1, 1] == marks
    assert (0, 0) == (dead, unnamed)


def test_a_screen_reader_hears_names(driver: Any, pages: dict[str, Path]) -> None:
    """In the accessibility tree every picture has its title and its words, and every table cell that heads others is a header."""
    shown(driver, pages["harmless"])
    nodes = driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    images = [node["name"]["value"] for node in nodes if node["role"]["value"] in ("image", "img")]
    headers = [node for node in nodes if node["role"]["value"] in ("rowheader", "columnheader")]

    assert 6 == len(images)
    assert all(len(name) > 40 for name in images)
    assert len(headers) > 30


def test_paper_has_everything(driver: Any, pages: dict[str, Path]) -> None:
    """Printed, the folds are open, the colours are those of paper, and the navigation is gone."""
    shown(driver, pages["harmless"], scheme="dark", media="print")
    heights = driver.execute_script(
        "return [...document.querySelectorAll('details pre, details ul, details table')].map(e => e.getBoundingClientRect().height)"
    )

    assert heights
    assert min(heights) > 0
    assert "rgb(255, 255, 255)" == driver.execute_script(
        "return getComputedStyle(document.body).backgroundColor"
    )
    assert "none" == driver.execute_script("return getComputedStyle(document.querySelector('nav')).display")
