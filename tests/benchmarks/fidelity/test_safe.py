"""What the benchmark of safe answers counts, and that it sees a program of another model."""

from __future__ import annotations

import shutil

import pytest
from tiny_model import LENGTH, write_ids

from atlasc.bundle.folder import load_bundle
from atlasc.compilation.compile import compile_model
from atlasc.compilation.options import CompileOptions
from atlasc.simulation.agreement import Promise
from benchmarks.fidelity.safe import CHUNK, Case, Judged, measured, summary

LENGTHS = [LENGTH, 3, 1, 5, 2] * 4


@pytest.fixture(scope="module")
def case(texts, tmp_path_factory):
    """A random BERT, and its program in the folder `program`."""
    root = shutil.copytree(texts, tmp_path_factory.mktemp("safe") / "texts")
    options = CompileOptions(sequence_length=LENGTH, target="sim", recipe="is")
    compile_model(str(root / "model"), root / "data.jsonl", root / "program", options)
    write_ids(root / "others.jsonl", LENGTHS)
    return Case(root / "model", root / "data.jsonl", {"others": root / "others.jsonl"}, LENGTH)


def test_only_safe_inputs_count() -> None:
    inputs = [
        Judged("safe", 1.0, 0.1),
        Judged("safe", 0.0, 0.7),
        Judged("undecided", 0.0, 0.9),
        Judged("unsafe", 0.0, float("inf")),
    ]
    found = summary(inputs, Promise("class", 0.5))
    assert (found["inputs"], found["safe"], found["undecided"], found["unsafe"]) == (4, 2, 1, 1)
    assert (found["agree"], found["largest error"], found["beyond"]) == (0.5, 0.7, 1)
    assert found["interval"][0] < 0.5 < found["interval"][1]
    none = summary(inputs[3:], Promise("class", 0.5))
    assert none["agree"] is None and none["largest error"] is None and none["beyond"] == 0


def test_an_error_that_is_not_finite_is_beyond_what_is_stated() -> None:
    assert summary([Judged("safe", 0.0, float("nan"))], Promise("values", 0.5))["beyond"] == 1


def test_a_program_agrees_with_its_own_model(case) -> None:
    found = measured("tiny", case, load_bundle(case.model.parent / "program"))
    (row,) = found["rows"]
    assert row["inputs"] == len(LENGTHS) > CHUNK
    assert row["safe"] and row["agree"] == 1.0 and not row["beyond"]
    assert 0 < row["largest error"] <= row["stated"]
    assert found["faults"] == []


def test_a_program_of_another_model_is_a_fault(case, tmp_path) -> None:
    from transformers import BertModel

    other = BertModel.from_pretrained(case.model, add_pooling_layer=False)
    other.encoder.layer[1].output.LayerNorm.bias.data[:4] += 1.0
    other.save_pretrained(tmp_path / "model")
    wrong = Case(tmp_path / "model", case.data, case.tried, LENGTH)
    found = measured("tiny", wrong, load_bundle(case.model.parent / "program"))
    (fault,) = found["faults"]
    assert "others" in fault and "err by more than stated" in fault
