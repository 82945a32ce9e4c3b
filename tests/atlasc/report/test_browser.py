"""The pages in Chromium, as a person sees them: on a desk and on a phone, by day and by night."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageStat
from tiny_model import Tiny

from atlasc.bundle.folder import load_bundle
from atlasc.program.costs import program_costs
from atlasc.report import front_page
from atlasc.report.drawing import draw_program
from atlasc.report.front_page import LivePage, front_html
from atlasc.report.fronts_page import fronts_html
from atlasc.report.pages import evaluation_html
from atlasc.report.report_page import report_html
from atlasc.report.summary import costs_summary
from atlasc.search.front import Front
from atlasc.search.points import Point
from atlasc.simulation.confusion import confusion
from tests.atlasc.report.browser import (
    LOOKS,
    OVERLAPS,
    SIZES,
    chromium,
    missing,
    opened,
    serious,
)

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there is a browser")
LAYER = (5, 5, 0, 0, 0, 3, 3, 3)
POINTS = 30
FRONT = Front(
    tuple(
        Point(
            60 + place, 40 + place, 0.5 * 0.6**place, tuple(LAYER for _ in range(12)),
            seconds=30.0 + 4 * place, held_back_error=0.51 * 0.6**place, unsafe=max(0, 9 - place),
            agreement=min(1.0, 0.9 + 0.011 * place), accuracy=min(0.97, 0.85 + 0.01 * place),
            memory_bytes=(8 << 30) + (place << 27),
        )
        for place in range(POINTS)
    ),
    "latency",
    (300.0, 0.2),
    strategy="hybrid",
    held_back=200,
    expert=Point(
        170, 120, 1e-6, tuple(LAYER for _ in range(12)), seconds=260.0, held_back_error=1e-6,
        unsafe=0, agreement=1.0, accuracy=0.97, memory_bytes=14 << 30,
    ),
    facts={"model": "a-sentence-encoder", "machine": "2 threads of a processor", "options": {}},
    measure="class",
    labelled=300,
    model_accuracy=0.97,
)  # fmt: skip
COMMAND = ("atlasc", "compile", "models/encoder", "--data", "texts.txt", "--front", "found")
RECOMMENDED = 9
"""Place of the cheapest point whose error is at most 1% and that has no unsafe input."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def pages(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Name -> file of each page; the report is that of a model of twelve different layers."""
    folder = tmp_path_factory.mktemp("pages")
    facts = json.loads((tiny.bundle / "manifest.json").read_text())
    points = [replace(p, error=0.7 * p.error, bootstraps=p.depth // 4) for p in FRONT.points]
    by_levels = replace(FRONT, points=tuple(points), cost="levels")
    texts = {
        "front": front_html(FRONT, 0.01, COMMAND),
        "report": report_html(_deep(facts), FRONT, _ops(), _NOISE),
        "evaluation": evaluation_html(
            _EVALUATION, {"polynomials": "without encryption"}, confusion(_ANSWERED)
        ),
        "running": _running(by_levels),
        "fronts": fronts_html([("levels", by_levels), ("seconds", FRONT)], "latency"),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


def _running(front: Front) -> str:
    """The page of a running search, which stays while it is looked at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(front_page, "EVERY", 3600.0)
        return front_html(front, running=True)


def _deep(facts: dict[str, Any]) -> dict[str, Any]:
    layers, ranges = [], []
    first, known = facts["costs"]["per_layer"][0], facts["calibration"]["ranges"]
    for layer in range(12):
        layers.append({**first, "layer": layer, "seconds": 10.0 + layer, "kinds": _KINDS})
        place = f"encoder.layer.{layer}.attention.output.LayerNorm"
        ranges += [{**one, "location": place} for one in known]
    costs = {**facts["costs"], "per_layer": layers, "seconds": 186.0, "machine": "a machine"}
    one = {"input": "a text", "location": "encoder.layer.3.attention.self", "op": "nn.softmax"}
    violation = {**one, "reached": 9.0, "low": 0.0, "high": 1.0}
    calibration = {**facts["calibration"], "ranges": ranges, "violations": [violation] * 20}
    return {**facts, "costs": costs, "calibration": calibration}


_KINDS = {"linear": 4.0, "bootstrap": 3.0, "softmax": 2.0, "layer_norm": 1.0}
_NOISE = [{"kind": kind, "ops": 12, "change": 1e-6} for kind in _KINDS]
_ANSWERED = [
    (str(label), str((label + wrong) % 10), str((label + wrong * (label % 3)) % 10))
    for label in range(10)
    for wrong in (0, 0, 1, 3)
] * 30
_EVALUATION: dict[str, Any] = {
    "program": "encoder", "inputs": 20, "measure": "class", "promise": "the same class",
    "notes": ["a note"], "agreement": 0.95, "accuracy": 0.9, "unsafe": {"text 3": "it errs"},
    "undecided": {}, "left_out": {}, "unlabelled": {},
    "figures": [{
        "stage": "polynomials", "inputs": 20, "labelled": 20, "accuracy": 0.9,
        "accuracy_interval": [0.8, 0.95], "agreement": 0.95, "agreement_interval": [0.9, 0.99],
        "divergence": 1e-4, "max_error": 0.01, "mean_error": 0.001, "seconds": 3.0,
    }],
    "worst": [{
        "input": "text 3", "verdict": "unsafe", "label": "1", "model": "1", "program": "0",
        "error": 0.3,
    }],
}  # fmt: skip


def _ops() -> list[dict[str, Any]]:
    return [
        {
            "location": f"encoder.layer.{layer}.attention.self", "op": "nn.softmax", "layer": layer,
            "settings": f"degrees ({7 + layer}, 15, 31), renormalised 1", "evaluated": "7, 15, 31",
            "bases": "3 measured", "depth": 14,
        }
        for layer in range(12)
        for _ in range(3)
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["front", "report", "evaluation", "running", "fronts"])
@pytest.mark.parametrize(("size", "theme"), LOOKS)
def test_a_page_can_be_read(
    browser: Any, pages: dict[str, Path], name: str, size: str, theme: str
) -> None:
    with opened(browser, pages[name], size, theme) as page:
        for details in page.query_selector_all("details"):
            details.evaluate("(one) => { one.open = true; }")
        width = SIZES[size][0]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CUT_OFF) == []
        letters = page.evaluate(LETTERS)
        assert letters == [] or min(letters) >= 11
        assert page.evaluate(OVERLAPS) == []
        assert serious(page) == []
        picture = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("L")
        brightness = ImageStat.Stat(picture).mean[0]
        assert brightness > 190 if theme == "light" else brightness < 80


CUT_OFF = """() => Array.from(document.querySelectorAll(".scroll"))
  .filter((one) => one.scrollWidth > one.clientWidth + 1)
  .map((one) => `${one.getAttribute("aria-label")}: ${one.scrollWidth} > ${one.clientWidth}`)"""
LETTERS = """() => Array.from(document.querySelectorAll("svg text"),
  (text) => text.getBoundingClientRect().height).filter((height) => height > 0)"""
"""Heights of the lines of text in charts, in pixels."""


def test_a_report_of_twelve_layers_is_not_endless_on_a_phone(
    browser: Any, pages: dict[str, Path]
) -> None:
    with opened(browser, pages["report"], "phone") as page:
        assert page.evaluate("document.documentElement.scrollHeight") < 8000


def test_the_page_of_a_running_search_reads_itself_again(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "live.html"
    page = browser.new_page()
    with LivePage(file) as live:
        live.show(replace(FRONT, evaluations=40))
        page.goto(file.as_uri())
        assert "running: 40 evaluations" in page.inner_text("[role=status]")
        live.show(replace(FRONT, evaluations=41))
        assert "running: 40 evaluations" in file.read_text(encoding="utf-8"), "too soon"
        live.end(front_html(replace(FRONT, evaluations=80), 0.01, COMMAND))
    page.wait_for_function("document.getElementById('again') === null")
    assert "80" in page.text_content("details") and page.is_visible("text=recommended")
    page.close()


def test_a_search_without_a_result_leaves_its_last_front(tmp_path: Path) -> None:
    file = tmp_path / "live.html"
    with LivePage(file) as live:
        live.show(replace(FRONT, complete=True))
    text = file.read_text(encoding="utf-8")
    assert "The search was interrupted" in text and 'id="again"' not in text


def _chosen(page: Any) -> list[str]:
    shown = "Array.from(document.querySelectorAll('section.point:not([hidden])'), (one) => one.id)"
    found: list[str] = page.evaluate(shown)
    for one in page.query_selector_all(".chosen"):
        assert f"point-{one.get_attribute('data-point')}" in found
    return found


def test_chart_table_and_details_show_one_point(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages["front"]) as page:
        assert _chosen(page) == [f"point-{RECOMMENDED}"]
        assert f"Point {RECOMMENDED + 1}, recommended" in page.inner_text(f"#point-{RECOMMENDED}")
        mark = page.query_selector(".mark[data-point='20'] path").bounding_box()
        page.mouse.click(mark["x"] + mark["width"] / 2, mark["y"] + mark["height"] / 2)
        assert _chosen(page) == ["point-20"]
        page.click("tr[data-point='3'] td:nth-child(2)")
        assert _chosen(page) == ["point-3"]
        page.keyboard.press("Tab")
        page.focus("#points input[value='3']")
        page.keyboard.press("ArrowDown")
        assert _chosen(page) == ["point-4"]
        page.click("text=Show point 10")
        assert _chosen(page) == [f"point-{RECOMMENDED}"]
        chart, details = page.query_selector("figure"), page.query_selector(".side")
        left, right = chart.bounding_box(), details.bounding_box()
        assert left["x"] + left["width"] <= right["x"] and abs(left["y"] - right["y"]) < 40


def test_a_limit_finds_the_most_accurate_point_within_it(
    browser: Any, pages: dict[str, Path]
) -> None:
    with opened(browser, pages["front"]) as page:
        assert page.inner_text("#within") == "No point", "all within a minute have unsafe inputs"
        why = page.inner_text("#within-why")
        assert "(8) give other answers" in why and "is 10: 66 s" in why
        page.fill("#limit", "59")
        assert page.inner_text("#within-why") == why, "the script says what the page said"
        page.fill("#limit", "100")
        assert page.inner_text("#within") == "Point 18"
        assert "98 s" in page.inner_text("#within-why")
        page.click("#within-show")
        assert _chosen(page) == ["point-17"]
        page.fill("#limit", "3")
        assert page.inner_text("#within-why").startswith("Every point takes longer.")
        assert not page.is_visible("#within-show")


def test_a_price_gives_the_cost_of_a_thousand_answers(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages["front"]) as page:
        assert not page.is_visible(".euros >> nth=0")
        page.fill("#price", "1.8")
        seconds = FRONT.points[RECOMMENDED].seconds or 0.0
        cost = 1000 * 1.8 * seconds / 3600
        assert page.inner_text(f"tr[data-point='{RECOMMENDED}'] .euros") == f"€ {cost:.0f}"
        assert page.inner_text(f"#point-{RECOMMENDED} dd.euros") == f"€ {cost:.0f}"
        page.fill("#price", "")
        assert not page.is_visible(".euros >> nth=0")


def test_the_command_is_copied_or_selected(browser: Any, pages: dict[str, Path]) -> None:
    expected = f"{' '.join(COMMAND)} --point 10 -o a-sentence-encoder-10"
    with opened(browser, pages["front"]) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.click(f"[data-copy='command-{RECOMMENDED}']")
        page.wait_for_function(
            "document.querySelector('.point:not([hidden]) [role=status]').textContent"
        )
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == expected
        page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(Error()); }")
        page.click(f"[data-copy='command-{RECOMMENDED}']")
        page.wait_for_function("getSelection().toString().length > 0")
        assert page.evaluate("getSelection().toString()") == expected


def test_texts_of_a_drawn_program_do_not_overlap(browser: Any, tiny: Tiny, tmp_path: Path) -> None:
    bundle = load_bundle(tiny.bundle)
    program = replace(bundle.program, name="a_program_with_a_name_that_is_longer_than_a_box_is")
    costs = program_costs(program)
    for counts in costs.per_op.values():  # as many as in a large program
        for primitive in counts.primitives:
            counts.primitives[primitive] *= 12_345
    summary = costs_summary(costs, bundle.parameters)
    summary["machine"] = "64 threads of a processor with a long name"
    picture = tmp_path / "program.html"
    drawn = draw_program(program, costs, summary, bundle.parameters)
    picture.write_text(f"<!doctype html>{drawn}", encoding="utf-8")
    with opened(browser, picture) as page:
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate(OUTSIDE) == []


OUTSIDE = """() => {
  const frame = document.querySelector("svg").getBoundingClientRect();
  return Array.from(document.querySelectorAll("svg text"))
    .filter((text) => text.getBoundingClientRect().right > frame.right + 1)
    .map((text) => text.textContent);
}"""
