"""depth and inspect: published figures, and the same figures from a model, a text and a bundle."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.atlasc.cli.command import CONFIGS, MODEL, ROOT, refused, run

KEYS = {
    "depth", "levels", "levels_total", "bootstraps", "key_switches", "plaintext_products",
    "ciphertext_products", "rotation_keys", "seconds", "memory_bytes", "security_bits",
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "recipe", "depth"),
    [
        ("bert-base", "is", 1212),
        ("vit-base", "is", 1212),
        ("bert-base", "nexus", 948),
        ("bert-base", "thor", 1068),  # THOR's paper reports 1070: docs/depth.md
    ],
)
def test_published_depths(config: str, recipe: str, depth: int) -> None:
    outcome = run("depth", CONFIGS / config, "--recipe", recipe, "--quiet")
    assert outcome.out == f"{depth}\n"


@pytest.mark.deep("recipes")
def test_depth_of_eight_billion_parameters_without_them() -> None:
    # The memory of this process alone: getrusage counts what its parent held when it started it.
    code = (
        "import re, sys\n"
        "from atlasc.cli import app\n"
        "try:\n    app(['depth', sys.argv[1], '--recipe', 'is', '--quiet'])\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "print(re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read()).group(1))"
    )
    command = [sys.executable, "-c", code, str(CONFIGS / "llama3-8b")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    depth, kilobytes = done.stdout.splitlines()
    assert depth == "3104"
    assert int(kilobytes) < 4e6, "the weights, of 30 GB, were made"


def test_depth_table_and_json() -> None:
    table = run("depth", MODEL)
    assert "nn.softmax" in table.out
    assert "vit.layernorm" in table.out  # outside the blocks
    found = json.loads(run("depth", MODEL, "--json").out)
    assert found["depth"] == 101
    assert found["depth_outside"] == 17
    assert found["per_layer"] == [{"layer": 0, "depth": 101}]
    assert sum(op["depth"] for op in found["ops"]) == 118


def test_inspect_bert_without_weights() -> None:
    found = json.loads(run("inspect", CONFIGS / "bert-base", "--json").out)
    assert found.keys() >= KEYS
    assert found["depth"] == 1212
    assert found["levels"] == 924  # with features in the low bits, and GELU's terms that count
    assert found["nominal_ranges"] is True
    blocks = [row for row in found["per_layer"] if row["layer"] is not None]
    assert [row["layer"] for row in blocks] == list(range(12))
    assert all(row.keys() >= KEYS for row in found["per_layer"])
    for key in ("key_switches", "plaintext_products", "ciphertext_products", "bootstraps"):
        assert sum(row[key] for row in found["per_layer"]) == found[key] > 0
    assert sum(row["levels"] for row in blocks) == found["levels"]


def test_inspect_of_texts_of_all_levels_agree(tmp_path: Path) -> None:
    nn, ckks = tmp_path / "nn.air", tmp_path / "ckks.air"
    run("trace", MODEL, "-o", nn)
    whole = json.loads(run("inspect", nn, "--recipe", "is", "--json").out)
    run(
        "opt", nn, "-o", ckks, "-p",
        "canonicalise,approximate,expand,normalise-affine,fold-features,assign-scales,select-early,"
        "pack,place-bootstraps{levels=18,batch=2,narrow=16,lowest=3,landings=2},"
        "rotation-keys",
    )  # fmt: skip
    assert whole["slots"] == 32768
    text = json.loads(run("inspect", ckks, "--json", "--ops").out)
    assert text["depth"] is None
    assert any(row["location"] == "vit.layers.0.attention" for row in text["per_module"])
    for key in KEYS - {"depth"}:
        assert text[key] == pytest.approx(whole[key]), key


def test_seconds_by_kind_and_layer_add_up() -> None:
    found = json.loads(run("inspect", MODEL, "--json").out)
    rows = found["per_kind"]
    assert {"bootstrap", "softmax", "gelu", "layer_norm", "linear"} <= {r["kind"] for r in rows}
    assert [r["seconds"] for r in rows] == sorted((r["seconds"] for r in rows), reverse=True)
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    for key in ("seconds", "bootstraps", "key_switches", "plaintext_products"):
        assert sum(row[key] for row in rows) == pytest.approx(found[key])
    for row in found["per_layer"]:
        assert sum(row["kinds"].values()) == pytest.approx(row["seconds"])
    assert "threads of" in found["machine"] and found["key_seconds"] > 0


def test_tables_show_where_the_time_goes() -> None:
    shown = run("inspect", MODEL).out
    assert "seconds" in shown and "GiB" in shown and "█" in shown
    (line,) = [line for line in shown.splitlines() if "attention scores" in line]
    assert "│" in line


def test_a_gpu_is_predicted_by_the_bytes_that_it_moves() -> None:
    found = json.loads(run("inspect", MODEL, "--target", "cuda", "--json").out)
    rows = found["per_kind"]
    for key in ("device_bytes", "seconds"):
        assert sum(row[key] for row in rows) == pytest.approx(found[key]) and found[key] > 0
    assert [r["share"] for r in rows] == sorted((r["share"] for r in rows), reverse=True)
    shown = run("inspect", MODEL, "--target", "cuda").out
    assert "GB moved" in shown and "on the GPU (estimated)" in shown
    assert "NVIDIA H200" in shown
    assert json.loads(run("inspect", MODEL, "--json").out)["device_bytes"] is None


def test_graph_is_an_svg_that_names_the_layers(tmp_path: Path) -> None:
    graph = tmp_path / "program.svg"
    run("inspect", MODEL, "--graph", graph)
    root = ElementTree.parse(graph).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"layer 0", "classifier", "output logits"} <= set(texts)
    assert any(text.startswith("predicted seconds on") for text in texts if text)
    assert any(text.startswith("softmax ") and text.endswith("%") for text in texts if text)
    assert [path.name for path in tmp_path.iterdir()] == ["program.svg"]


def test_primitives_are_a_text(tmp_path: Path) -> None:
    path = tmp_path / "program.txt"
    run("inspect", MODEL, "--primitives", path)
    text = path.read_text()
    assert "function linear_transform_1(" in text
    assert "= dot_plain " in text
    assert "  # classifier" in text
    refusal = refused("inspect", MODEL, "--primitives", tmp_path / "a.png")
    assert "does not end in .txt" in refusal.replace("\n", " ")


@pytest.mark.parametrize("command", ["depth", "inspect"])
def test_bad_models(command: str, tmp_path: Path) -> None:
    assert "not found" in refused(command, tmp_path / "nothing")
    assert "is empty" in refused(command, tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "nothing-known"}')
    assert "nothing-known" in refused(command, tmp_path)
    assert "no recipe 'wrong'" in refused(command, MODEL, "--recipe", "wrong")


def test_bad_texts_and_places(tmp_path: Path) -> None:
    text = tmp_path / "x.air"
    assert "cannot be read" in refused("inspect", text)
    text.write_text("module @m : nn {\n  %x = nn.nonsense\n}\n")
    assert "2:" in refused("inspect", text)
    assert "ends in .svg" in refused("inspect", MODEL, "--graph", tmp_path / "a.png").replace(
        "does not end", "ends"
    )
