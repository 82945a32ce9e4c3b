"""Debian's Chromium, driven by Playwright, to look at the pages that atlasc writes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

NAMES = "chromium", "chromium-browser", "google-chrome"
SIZES = {"desk": (1440, 900), "phone": (390, 844)}
THEMES = "light", "dark"
LOOKS = [
    (size, theme)
    if (size, theme) in (("phone", "light"), ("desk", "dark"))
    else pytest.param(size, theme, marks=pytest.mark.deep("looks"))
    for size in SIZES
    for theme in THEMES
]
"""Of these each size and each theme is looked at once in a quick run."""


def missing() -> str:
    """Why there is no browser to test with; empty if there is one."""
    if find_spec("playwright") is None or find_spec("axe_playwright_python") is None:
        return "playwright and axe-playwright-python are not installed (make install)"
    if not any(map(shutil.which, NAMES)):
        return "Chromium is not installed (on Debian: apt-get install chromium)"
    return ""


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser."""
    from playwright.sync_api import sync_playwright

    place = next(found for name in NAMES if (found := shutil.which(name)))
    # Chromium's sandbox refuses to run as root, and CI is root in a container of its own.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=place, args=options)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, file: Path, size: str = "desk", theme: str = "light") -> Iterator[Any]:
    """A page; fails if it asked for anything but its own file, or if its script failed."""
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=theme, device_scale_factor=1
    )
    page, own, faults = context.new_page(), file.as_uri(), list[str]()
    page.on("request", lambda request: faults.append(request.url))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text))
    page.goto(own)
    yield page
    context.close()
    assert faults == [own]


def serious(page: Any) -> list[str]:
    """What axe finds: rules that are broken, with their elements; serious and critical ones."""
    import axe_playwright_python

    folder = Path(next(iter(axe_playwright_python.__path__)))
    page.evaluate((folder / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")
    return [
        f"{one['id']}: {[node['html'][:90] for node in one['nodes']]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


OVERLAPS = """() => {
  const boxes = Array.from(document.querySelectorAll("svg text"), (text) => {
    const box = text.getBoundingClientRect();
    return { words: text.textContent, box };
  }).filter(({ box }) => box.width > 0);
  const found = [];
  boxes.forEach((one, place) => boxes.slice(place + 1).forEach((other) => {
    const a = one.box, b = other.box;
    if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
      found.push(`${one.words} / ${other.words}`);
  }));
  return found;
}"""
"""Script: pairs of texts of drawings that overlap."""
