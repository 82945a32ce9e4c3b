"""The pages of a front and of a program: complete without a network, everything escaped."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from html_page import HtmlPage
from tiny_model import Tiny

from atlasc.polynomials.parametrisation import PAPER, WIDE
from atlasc.report.charts import SHAPES
from atlasc.report.front_page import front_html
from atlasc.report.report_page import report_html
from atlasc.report.svg import Drawing
from atlasc.report.words import layers_in_words, merged_rows, percent
from atlasc.search.front import Front
from atlasc.search.points import Point

LAYERS = ((5, 5, 0, 0, 0, 3, 3, 3), (7, 0, 0, 0, 0, 9, 1, 2))
FACTS = {"model": "<b>bert & co</b>", "options": {"seed": 3}, "sequence_length": 64}
FRONT = Front(
    (
        Point(60, 40, 0.05, LAYERS, held_back_error=np.inf, unsafe=2),
        Point(70, 50, 0.004, LAYERS, seconds=90.0, held_back_error=0.005, unsafe=0),
        Point(90, 70, 0.0, LAYERS),
    ),
    "levels",
    (100.0, 0.2),
    strategy="atlas",
    held_back=20,
    expert=Point(101, 77, 1e-7, LAYERS, held_back_error=1e-7, unsafe=0),
    facts=FACTS,
)


def test_the_page_is_whole_and_fetches_nothing() -> None:
    text = front_html(FRONT)
    page = HtmlPage(text)
    assert page.open == page.fetched == []
    assert "url(" not in text
    assert "import" not in text.partition("<script>")[2]


def test_every_point_is_in_the_chart_in_the_table_and_has_its_settings() -> None:
    page = HtmlPage(front_html(FRONT, 0.01))
    points = [(tag, known.get("data-point")) for tag, known in page.tags]
    for index in "012":
        assert ("svg", index) in points
        assert ("tr", index) in points
    sections = [known["id"] for tag, known in page.tags if "point" in (known.get("class") or "")]
    assert [one for one in sections if one] == ["point-0", "point-1", "point-2"]
    words = "".join(page.words)
    for word in (
        "Point 2, recommended",
        "The cheapest point whose error is at most 1% of how answers vary",
        "Mean error of an answer, in % of how answers vary",
        "Levels by formula, of the blocks",
        "Layer 1:",
        "softmax in 1 iteration, 1/√x of degrees 127; first norm degree 511",
        "red: gives other answers",
        "reference point",
    ):
        assert word in words
    assert 'choose("1")' in words
    assert "Predicted time" not in words


def test_what_inputs_leave_is_red_and_has_a_shape_of_its_own() -> None:
    page = HtmlPage(front_html(FRONT))
    marks = [known for tag, known in page.tags if tag == "svg" and known.get("data-point")]
    assert [mark["class"] for mark in marks] == ["mark bad", "mark good", "mark good"]
    assert len(set(SHAPES.values())) == 3


def test_a_front_of_seconds_has_axes_in_seconds_memory_and_prices() -> None:
    points = tuple(
        replace(point, seconds=seconds, memory_bytes=size << 30, agreement=1.0)
        for point, seconds, size in zip(FRONT.points, (40.0, 55.0, 90.0), (3, 4, 5))
    )
    front = replace(FRONT, points=points, cost="latency", expert=None)
    command = ("atlasc", "compile", "a model", "--front", "found")
    words = "".join(HtmlPage(front_html(front, 0.01, command)).words)
    for word in (
        "Predicted time of one answer (seconds)",
        "€ per hour",
        "about 4 GiB",
        "The most accurate point within the limit: 55 s.",
        "atlasc compile 'a model' --front found --point 2 -o '<b>bert & co</b>-2'",
        "atlasc run '<b>bert & co</b>-2' --input INPUTS",
    ):
        assert word in words
    slow = tuple(replace(point, seconds=70.0) for point in points)
    assert "Every point takes longer." in front_html(replace(front, points=slow))
    fast = replace(points[0], seconds=70.0, unsafe=0), replace(points[1], seconds=8.0, unsafe=1)
    slower = front_html(replace(front, points=fast))
    assert "The points within the limit (1) give other answers than the model." in slower
    assert "The fastest point with the model&#39;s answers is 1: 70 s." in slower


def test_nothing_is_recommended_where_no_answers_are_the_models() -> None:
    words = "".join(HtmlPage(front_html(replace(FRONT, points=FRONT.points[:1]))).words)
    assert "No point can be recommended" in words
    assert "recommended" not in words.partition("Point 1")[2].partition("Compile")[0]


def test_accuracy_lies_beside_error_and_what_disagrees_is_red() -> None:
    points = [
        replace(point, unsafe=0, agreement=agreement, accuracy=accuracy)
        for point, agreement, accuracy in zip(FRONT.points, (0.2, 0.99996, 1.0), (0.19, 0.96, 0.97))
    ]
    front = replace(FRONT, points=tuple(points), measure="class", labelled=100, model_accuracy=0.97)
    text = front_html(front)
    words = "".join(HtmlPage(text).words)
    assert 'class="mark bad" data-point="0"' in text and 'class="mark good" data-point="1"' in text
    for shown in ("19.00% (12.5 to 27.8)", "96.00%", "(100 labelled inputs)", "the same class"):
        assert shown in words
    assert "99.99%" in words, "only a whole share is 100%"
    assert "Right answers, in %" in words
    plain = "".join(HtmlPage(front_html(FRONT)).words)
    assert "Right answers, in %" not in plain and "Same answers as the model, in %" not in plain
    assert HtmlPage(text).open == HtmlPage(text).fetched == []


def test_names_are_escaped() -> None:
    text = front_html(FRONT)
    assert "&lt;b&gt;bert &amp; co&lt;/b&gt;" in text
    assert "<b>bert" not in text


def test_nothing_in_a_front_becomes_a_part_of_the_page() -> None:
    hostile = "</td></script><!--<img src=x onerror=alert(1)>\"' onload='x\x1b[31m\u202e\u2028\x00"
    front = replace(
        FRONT,
        strategy=hostile,
        facts=dict.fromkeys(("model", "sequence_length", "search_inputs", hostile), hostile)
        | {"options": {hostile: hostile, "list": [hostile]}},
        points=(replace(FRONT.points[0], exploded_at=hostile), *FRONT.points[1:]),
    )
    text = front_html(front)
    plain, page = HtmlPage(front_html(FRONT)), HtmlPage(text)
    assert page.open == page.fetched == []
    assert {tag for tag, _ in page.tags} == {tag for tag, _ in plain.tags}
    assert {name for _, known in page.tags for name in known} == {
        name for _, known in plain.tags for name in known
    }
    assert text.count("<script") == 1
    assert not set("\x1b\x00\u202e\u2028") & set(text)
    script = text.partition("<script>")[2]
    assert script == front_html(FRONT).partition("<script>")[2]


def test_nothing_in_a_manifest_becomes_a_part_of_its_report(tiny: Tiny) -> None:
    def spoilt(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: spoilt(member) for name, member in value.items()}
        if isinstance(value, list):
            return [*map(spoilt, value)]
        return "</td></script><img src=x>\"'\x1b\u202e" if isinstance(value, str) else value

    facts = json.loads((tiny.bundle / "manifest.json").read_text())
    ends = {"reached": 9.0, "low": 0.0, "high": 1.0}
    one = {"input": "a", "location": "b", "op": "nn.gelu", **ends}
    facts["calibration"]["violations"] = [one] * 60
    ops = [
        {
            "location": "b",
            "op": "nn.gelu",
            "settings": "degree 3",
            "evaluated": "3",
            "bases": "1 measured",
            "depth": 2,
        }
    ]
    plain = HtmlPage(report_html(facts, FRONT, ops))
    text = report_html(spoilt(facts), FRONT, spoilt(ops))
    page = HtmlPage(text)
    assert page.open == page.fetched == plain.open == []
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert not set("\x1b\u202e") & set(text)
    for words in ("and 10 more", "degree 3", "1 of 5 held-back inputs leave", "9"):
        assert words in "".join(plain.words)


def test_nothing_in_a_program_becomes_a_part_of_its_picture() -> None:
    hostile = "</text><script>x</script>\x00\"'"
    drawing = Drawing(9, 9)
    drawing.text(0, 0, hostile)
    drawing.add("circle", title=hostile, fill=hostile)
    root = ElementTree.fromstring(drawing.render(hostile))
    assert [element.tag.rpartition("}")[2] for element in root.iter()] == [
        *("svg", "text", "circle", "title"),
    ]
    assert set(root.attrib) >= {"aria-label", "viewBox"}


@pytest.mark.parametrize(
    ("front", "note"),
    [
        (replace(FRONT, complete=False), "was interrupted"),
        (replace(FRONT, points=()), "No setting stays finite"),
        (replace(FRONT, held_back=0), "No input was held back"),
        (replace(FRONT, points=FRONT.points[:1]), "Under every setting"),
    ],
)
def test_what_a_user_must_know_stands_above_all(front: Front, note: str) -> None:
    text = front_html(front)
    assert re.search(rf'class="warn">[^<]*{note}', text)
    assert HtmlPage(text).open == []
    assert note not in front_html(FRONT)


def test_it_says_that_points_were_not_tried() -> None:
    alone = front_html(replace(FRONT, points=FRONT.points[2:]))
    assert "Recommended, but not tried on held-back inputs" in alone
    assert "Only points that have a held-back error were tried" in front_html(FRONT)
    assert "were tried" not in front_html(replace(FRONT, points=FRONT.points[:2]))


def test_a_wide_space_names_the_algorithm_of_a_layer() -> None:
    wide = replace(
        FRONT, parametrisation=WIDE, expert=None,
        points=(Point(60, 40, 0.05, ((5, 0, 0, 0, 0, 3, 3, 9, 1),)),),
    )  # fmt: skip
    words = "".join(HtmlPage(front_html(wide)).words)
    assert "softmax direct, exponential of degree 1, 1/sum of degree 31; first norm" in words
    assert "activation degree 511" in words


def test_equal_layers_share_a_line_and_a_bar() -> None:
    same, other = LAYERS
    assert [name for name, _ in layers_in_words((same, same, other), PAPER)] == [
        "layers 0 to 1, each",
        "layer 2",
    ]
    rows = [{"layer": layer, "seconds": s} for layer, s in ((0, 1.0), (1, 1.0001), (None, 1.0))]
    merged = merged_rows(rows, ["seconds"])
    assert [row["name"] for row in merged] == ["layers 0 to 1, each", "outside the layers"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(10.0, "1000%"), (1.34, "134%"), (0.0037, "0.37%"), (4.8e-7, "0.000048%"), (0.0, "0%")],
)
def test_small_shares_have_two_digits(value: float, text: str) -> None:
    assert percent(value) == text
