"""The visitor's page in Chromium: a digit is drawn, asked, and answered."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from PIL import Image, ImageStat

from atlasc.demo.local import VisitorPage
from atlasc.remote.connection import Connection
from tests.atlasc.demo.conftest import CLASSES, served
from tests.atlasc.report.browser import LOOKS, SIZES, chromium, missing, serious
from tests.atlasc.service.running import Running

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there is a browser")
OUTCOME = "#answer:not([hidden]), #fault:not([hidden])"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@contextmanager
def opened(browser: Any, url: str, size: str = "desk", theme: str = "light") -> Iterator[Any]:
    """A page; fails if it asked anything of another place, or if its script failed."""
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=theme, device_scale_factor=1
    )
    found, faults, own = context.new_page(), list[str](), urlsplit(url).netloc

    def asked(url: str) -> None:
        if urlsplit(url.removeprefix("blob:")).netloc != own:
            faults.append(url)

    def said(message: Any) -> None:
        if message.type == "error":  # what the policy of the page forbids is one
            faults.append(message.text)

    found.on("request", lambda request: asked(request.url))
    found.on("pageerror", lambda error: faults.append(str(error)))
    found.on("console", said)
    found.goto(url)
    yield found
    context.close()
    assert faults == []


def draw(page: Any, *places: tuple[float, float]) -> None:
    """A stroke with the mouse; places are shares of the board."""
    box = page.query_selector("#drawing").bounding_box()
    points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in places]
    page.mouse.move(*points[0])
    page.mouse.down()
    for point in points[1:]:
        page.mouse.move(*point, steps=5)
    page.mouse.up()


def model_reads(page: Any) -> list[int]:
    """The 8 × 8 gray values that the model read."""
    found: list[int] = page.evaluate(
        """() => {
          const one = document.getElementById("seen-input");
          const data = one.getContext("2d").getImageData(0, 0, one.width, one.height).data;
          return Array.from(data).filter((value, place) => place % 4 === 0);
        }"""
    )
    return found


@pytest.mark.parametrize(("size", "theme"), LOOKS)
def test_a_drawing_is_answered(browser: Any, page: VisitorPage, size: str, theme: str) -> None:
    with opened(browser, page.url, size, theme) as shown:
        assert serious(shown) == []
        draw(shown, (0.44, 0.06), (0.44, 0.94))
        shown.click("#ask")
        shown.wait_for_selector(OUTCOME)
        assert not shown.is_visible("#fault"), shown.inner_text("#fault")
        assert shown.inner_text("#said") in CLASSES
        assert [one for one in CLASSES if one in shown.inner_text("#numbers")] == list(CLASSES)
        columns = [sum(model_reads(shown)[column::8]) for column in range(8)]
        assert columns.index(max(columns)) == 3 and columns[0] == columns[7] == 0
        assert shown.query_selector_all("#stages .done")[3].inner_text().endswith(" s")
        assert "simulation" in shown.inner_text("#warnings")
        for kind in ("query", "answer"):
            assert f"kind: {kind}" in shown.inner_text(f"#seen-{kind} pre")
        assert shown.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
        assert serious(shown) == []
        picture = Image.open(io.BytesIO(shown.screenshot(full_page=True))).convert("L")
        brightness = ImageStat.Stat(picture).mean[0]
        assert brightness > 190 if theme == "light" else brightness < 90


@pytest.mark.parametrize("size", SIZES)
def test_a_text_is_answered(
    browser: Any, text_connection: Connection, text_service: Running, size: str
) -> None:
    with (
        served(text_connection, text_service.url) as page,
        opened(browser, page.url, size, "dark") as shown,
    ):
        shown.click("#ask")
        assert "type a text" in shown.inner_text("#fault")
        shown.fill("#text", "a cat")
        shown.fill("#second", "on a mat")
        shown.click("#ask")
        shown.wait_for_selector(OUTCOME)
        assert not shown.is_visible("#fault"), shown.inner_text("#fault")
        assert "tokens of at most 8" in shown.inner_text("#read-words")
        assert shown.inner_text("#said") or shown.inner_text("#numbers")
        assert shown.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
        assert serious(shown) == []


def test_it_is_drawn_by_keyboard(browser: Any, page: VisitorPage) -> None:
    with opened(browser, page.url) as shown:
        shown.focus("#drawing")
        for key in ("ArrowLeft",) * 8 + (" ",) + ("ArrowRight",) * 12 + (" ",):
            shown.keyboard.press(key)
        shown.keyboard.press("ArrowDown")  # the pen is lifted
        for _ in range(3):
            shown.keyboard.press("Tab")
        assert shown.evaluate("document.activeElement.id") == "ask"
        shown.keyboard.press("Enter")
        shown.wait_for_selector(OUTCOME)
        assert shown.inner_text("#said") in CLASSES
        values = model_reads(shown)
        rows = [sum(values[8 * row : 8 * row + 8]) for row in range(8)]
        assert rows[3] == rows[4] == max(rows) and rows[0] == rows[7] == 0


def test_a_picture_from_a_file(browser: Any, page: VisitorPage, tmp_path: Path) -> None:
    path = tmp_path / "dot.png"
    image = Image.new("L", (8, 8))
    image.putpixel((6, 1), 255)
    image.save(path)
    with opened(browser, page.url) as shown:
        shown.click("#ask")
        assert "draw something first" in shown.inner_text("#fault")
        shown.set_input_files("#file", path)
        shown.click("#ask")
        shown.wait_for_selector("#answer:not([hidden])")
        assert model_reads(shown) == [255 * (place == 14) for place in range(64)]
        (tmp_path / "none.png").write_bytes(b"no picture")
        shown.set_input_files("#file", tmp_path / "none.png")
        shown.click("#ask")
        shown.wait_for_selector("#fault:not([hidden])")
        assert "no picture" in shown.inner_text("#fault") or "cannot be read" in shown.inner_text(
            "#fault"
        )
        draw(shown, (0.1, 0.5), (0.9, 0.5))  # whoever draws does not ask with the file
        shown.click("#ask")
        shown.wait_for_selector("#answer:not([hidden])")
        assert min(model_reads(shown)[27:29]) > 100


def test_a_drawing_that_is_dark_on_light(browser: Any, page: VisitorPage) -> None:
    with opened(browser, page.url) as shown:
        draw(shown, (0.5, 0.1), (0.5, 0.9))
        shown.check("#dark")
        draw(shown, (0.1, 0.5), (0.9, 0.5))
        shown.click("#ask")
        shown.wait_for_selector("#answer:not([hidden])")
        values = model_reads(shown)
        assert values[0] == values[63] == 255 and max(values[27], values[28], values[11]) < 150


def test_a_program_that_ended_is_said(browser: Any, page: VisitorPage) -> None:
    with opened(browser, page.url) as shown:
        draw(shown, (0.5, 0.1), (0.5, 0.9))
        shown.evaluate("() => { window.fetch = () => Promise.reject(Error('gone')); }")
        shown.click("#ask")
        shown.wait_for_selector("#fault:not([hidden])")
        assert "does not answer" in shown.inner_text("#fault")
        assert not shown.is_visible("#stop") and shown.is_enabled("#ask")


@pytest.mark.parametrize(("size", "theme"), LOOKS)
def test_the_front_page_can_be_read(browser: Any, service: Running, size: str, theme: str) -> None:
    with opened(browser, service.url + "/", size, theme) as shown:
        assert shown.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
        assert serious(shown) == []
        assert f"atlasc demo {service.url}" in shown.inner_text("main")
