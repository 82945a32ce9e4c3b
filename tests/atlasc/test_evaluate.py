"""``Program.evaluate`` on small models of several kinds, and the labels that it takes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import atlasc
from atlasc.compilation.prepare import trace_model
from atlasc.compilation.statement import measure_of
from atlasc.ir.errors import AtlasError
from atlasc.loading.inputs import Inputs
from atlasc.loading.labels import labels_of
from atlasc.loading.models import model_of
from atlasc.simulation.agreement import LARGEST, NOISE, PROMISED, USUAL, VARIATION
from atlasc.simulation.confusion import NONE, TOP, confusion
from atlasc.simulation.intervals import fisher, wilson

LENGTH, BIAS = 6, 100.0
SIZES = {
    "vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 16, "max_position_embeddings": 16,
}  # fmt: skip


def rows(count: int, seed: int = 0) -> list[list[int]]:
    """Token ids of texts of several lengths."""
    rng = np.random.default_rng(seed)
    return [rng.integers(1, 40, size=rng.integers(3, LENGTH + 1)).tolist() for _ in range(count)]


def answers(model: Any, texts: list[list[int]]) -> np.ndarray:
    """What HuggingFace answers, [texts, ...], each text alone."""
    with torch.no_grad():
        found = [model(torch.tensor([text]))[0].numpy() for text in texts]
    return np.concatenate(found)


def compiled(model: Any, data: Any = None, **options: Any) -> atlasc.Program:
    return atlasc.compile(
        model.eval(), rows(60) if data is None else data, sequence_length=LENGTH, target="sim",
        cost="levels", evaluations=30, prefixes=False, **options,
    )  # fmt: skip


def classifier(**changes: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        **SIZES, num_labels=3, id2label={0: "low", 1: "mid", 2: "high"},
        label2id={"low": 0, "mid": 1, "high": 2},
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config)
    with torch.no_grad():  # so that the classes differ from input to input
        model.bert.embeddings.word_embeddings.weight *= 20
        model.classifier.weight *= 5
        model.classifier.bias += changes.get("bias", 0.0)
    return model


@pytest.fixture(scope="module")
def biased() -> tuple[Any, atlasc.Program]:
    model = classifier(bias=BIAS)
    return model, compiled(model)


def test_a_bias_allows_no_larger_errors(biased: tuple[Any, atlasc.Program]) -> None:
    """A classifier whose scores are 100 each, and vary by little."""
    model, program = biased
    settings: Any = program.bundle.manifest.settings
    scores = answers(model, rows(60))
    spread = float(np.sqrt(np.mean(np.square(scores - scores.mean(axis=0)))))
    assert settings["variation"] == pytest.approx(spread, rel=0.3)
    assert settings["error"] <= 2e-3 * settings["variation"]
    assert settings["promise"]["agreement"] == "class"
    assert settings["agreement"] >= 0.99 and settings["agrees"]


def test_accuracy_is_that_of_the_labels(biased: tuple[Any, atlasc.Program]) -> None:
    model, program = biased
    texts = rows(80, seed=1)
    best = answers(model, texts).argmax(axis=1)
    truth = np.where(np.arange(80) % 4 == 0, (best + 1) % 3, best)
    names = ["low", "mid", "high"]
    labelled = [
        {"input_ids": text, "label": int(label)} for text, label in zip(texts, truth, strict=True)
    ]
    found = program.evaluate(labelled)
    clear = found.stage("model")
    assert clear.accuracy == pytest.approx(0.75)
    assert clear.accuracy_interval == wilson(60, 80)
    assert clear.agreement == 1 and clear.divergence == pytest.approx(0, abs=1e-12)
    assert found.agreement >= 0.99
    assert found.stage("simulation").inputs == found.inputs == 80
    # One norm: the greatest error of the table is that of the worst input, and below the promise.
    errors = [one.error for one in found.judged if one.verdict != "unsafe"]
    assert found.stage("polynomials").max_error == pytest.approx(max(errors))
    assert found.stage("polynomials").mean_error == pytest.approx(np.mean(errors))
    assert max(errors) <= program.bundle.poly.attributes[PROMISED]
    assert all(one.model == names[best[n]] for n, one in enumerate(found.judged))
    assert all(one.label == names[truth[n]] for n, one in enumerate(found.judged))
    assert len(found.unsafe) + len(found.undecided) < 10 and not found.left_out
    # What is called safe has HuggingFace's class.
    for row, one in enumerate(found.judged):
        assert one.verdict != "safe" or one.program == names[best[row]]
    assert [one.error for one in found.worst] == sorted(
        (o.error for o in found.worst), reverse=True
    )
    matrices = found.confusion
    assert matrices is not None and [one.name for one in matrices.classes] == sorted(names)
    for one in matrices.classes:
        of_class = [each for each in found.judged if each.label == one.name]
        assert one.inputs == len(of_class)
        assert one.model == sum(each.model == one.name for each in of_class)
        assert one.program == sum(each.program == one.name for each in of_class)
    assert sum(one.model for one in matrices.classes) == 60
    assert sum(cell.program for cell in matrices.cells) == 80
    assert found.to_dict()["confusion"]["classes"][0]["name"] == "high"
    packed = program.evaluate(labelled[:6], simulated=3)
    assert packed.stage("packed simulation").inputs == 3
    assert packed.stage("packed simulation").agreement == 1


def test_a_matrix_shows_where_model_and_program_differ() -> None:
    answered = [("1", "1", "1"), ("1", "1", "2"), ("2", "10", "10"), ("10", "10", None)]
    found = confusion([*answered, (None, "1", "2")])
    assert found is not None
    assert [one.name for one in found.classes] == ["1", "2", "10"]
    assert [(one.model, one.program) for one in found.classes] == [(2, 1), (0, 0), (1, 0)]
    assert [one.name for one in found.differing] == ["1", "10"]
    assert found.matrix == (
        ["label", "1", "2", "10", NONE],
        [
            ["1", "2 | 1", "0 | 1", "–", "–"],
            ["2", "–", "–", "1", "–"],
            ["10", "–", "–", "1 | 0", "0 | 1"],
        ],
    )
    assert confusion([(None, "1", "1")]) is None


def test_of_many_classes_those_that_differ_are_shown() -> None:
    names = [f"class {number}" for number in range(30)]
    equal = [(name, other, other) for name, other in pairwise(names)]
    found = confusion([*equal * 3, ("class 3", "class 3", "class 9")])
    assert found is not None and found.matrix is None
    assert [one.name for one in found.shown] == ["class 3"]
    first, second, *others = found.top
    assert (first.label, first.answer, first.model, first.program) == ("class 3", "class 9", 0, 1)
    assert not second.differs and second.model == 3 and len(others) == TOP - 2


def test_run_tells_the_distance_to_the_model(biased: tuple[Any, atlasc.Program]) -> None:
    model, program = biased
    texts = rows(2, seed=2)
    found = program.run(texts)
    expected = answers(model, texts)
    (given,) = found.outputs.values()
    assert found.model is not None and found.model_errors is not None
    (known,), (errors,) = found.model.values(), found.model_errors.values()
    assert known == pytest.approx(expected, abs=1e-4)
    assert errors == pytest.approx(np.abs(given - expected).mean(axis=1), abs=1e-4)
    assert found.model_max_error == pytest.approx(errors.max())
    assert found.agreement == 1


def test_an_undecided_input_is_answered_and_told(biased: tuple[Any, atlasc.Program]) -> None:
    """All inputs are, of a program to which encryption may add nearly all that it promises."""
    program = atlasc.load(biased[1].folder)
    attributes = program.bundle.poly.attributes
    attributes[PROMISED] = attributes[USUAL] = LARGEST * attributes[VARIATION]
    attributes[NOISE] = 0.9 * attributes[PROMISED]
    texts = rows(20, seed=9)
    judged = program.check(texts)
    undecided = [one for one in judged if one.kind == "undecided"]
    assert undecided and not any(one.safe or one.unsafe for one in undecided)
    assert all("errors of encryption may change its class" in one.why for one in undecided)
    found = program.run(texts)
    assert len(found.rows) == 20
    headline = f"{len(undecided)} input"
    assert any(
        one.startswith(headline) and "may not be the model's" in one for one in found.warnings
    )


def test_labels_that_do_not_match(biased: tuple[Any, atlasc.Program]) -> None:
    _, program = biased
    texts = rows(4, seed=3)
    labelled = [{"input_ids": text, "label": n} for n, text in enumerate(texts)]
    found = program.evaluate(labelled)  # 3 is no class: the others are answered
    assert found.stage("model").labelled == 3 and found.stage("model").inputs == 4
    assert found.unlabelled == {"data[3]": "the model has no class 3; it has 0 to 2"}
    assert "1 input has no usable label" in found.notes[0]
    with pytest.raises(AtlasError, match="the labels do not match the model"):
        program.evaluate([{"input_ids": text, "label": 7} for text in texts])
    bare = program.evaluate(texts)
    assert bare.accuracy is None and bare.agreement == 1
    assert "the inputs have no labels, so only agreement" in bare.notes[0]


@pytest.mark.deep("search")
def test_labelled_inputs_decide_which_setting_is_taken(tmp_path: Path) -> None:
    model = classifier()
    texts = rows(40, seed=4)
    best = answers(model.eval(), texts).argmax(axis=1)
    labelled = [{"input_ids": t, "label": int(n)} for t, n in zip(texts, best, strict=True)]
    plain = compiled(model)
    exact = compiled(model, labelled=labelled, min_accuracy=0.97)
    settings: Any = exact.bundle.manifest.settings
    assert settings["accuracy"] >= 0.97
    # By accuracy it is cheaper than by an error.
    reference: Any = plain.bundle.manifest.settings
    assert settings["levels"] <= reference["levels"]
    agreeing: Any = compiled(model, agreement=0.9).bundle.manifest.settings
    assert agreeing["agreement"] >= 0.9 and agreeing["levels"] <= reference["levels"]
    # The data may have labels themselves: those of held-back inputs count.
    own: Any = compiled(model, data=labelled, min_accuracy=0.9).bundle.manifest.settings
    assert own["accuracy"] >= 0.9
    with pytest.raises(AtlasError, match="min_accuracy needs labels"):
        compiled(model, min_accuracy=0.5)
    with pytest.raises(AtlasError, match="no label in the labelled inputs can be used"):
        compiled(model, labelled=texts)
    with pytest.raises(AtlasError, match=r"labelled inputs no\.jsonl not found"):
        compiled(model, labelled="no.jsonl")


def test_a_cheap_setting_is_marked_and_its_answers_are_not_safe() -> None:
    """With the fewest levels of all, whatever they are worth."""
    model = classifier()
    program = compiled(model, max_error=1e9)
    settings: Any = program.bundle.manifest.settings
    texts = rows(60, seed=5)
    best = answers(model, texts).argmax(axis=1)
    found = program.evaluate(texts)
    names = ["low", "mid", "high"]
    same = np.array([one.program == names[n] for one, n in zip(found.judged, best, strict=True)])
    safe = np.array([one.verdict == "safe" for one in found.judged])
    assert same[safe].mean() >= 0.995 if safe.any() else True
    if not settings["agrees"]:
        assert settings["agreement"] < 0.99
        assert found.agreement < 1


def test_a_regression_has_a_correlation() -> None:
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(
        transformers.BertConfig(**SIZES, num_labels=1)
    )
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight *= 20
    program = compiled(model)
    texts = rows(30, seed=6)
    truth = answers(model, texts)[:, 0] * 3 - 1
    found = program.evaluate(replace(program.inputs(texts), labels=truth))
    assert found.measure == "values" and found.accuracy is None
    clear, ours = found.stage("model"), found.stage("polynomials")
    assert clear.pearson == pytest.approx(1) and clear.spearman == pytest.approx(1)
    assert ours.pearson is not None and 0.999 < ours.pearson <= 1
    assert ours.pearson_interval == fisher(ours.pearson, 30)
    assert found.agreement == 1


def test_an_embedding_is_compared_by_its_values() -> None:
    torch.manual_seed(0)
    program = compiled(
        transformers.BertModel(transformers.BertConfig(**SIZES), add_pooling_layer=False)
    )
    found = program.evaluate(rows(20, seed=7))
    assert found.measure == "values" and found.agreement == 1
    assert found.stage("simulation").least_cosine >= 0.995
    assert not found.unsafe and not found.undecided
    assert "how answers vary" in found.promise
    labelled = [{"input_ids": text, "label": 1} for text in rows(4, seed=7)]
    with pytest.raises(AtlasError, match="labels do not match(.|\n)*leave the labels out"):
        program.evaluate(labelled)


@pytest.mark.deep("search")
def test_a_decoder_is_compared_by_its_tokens() -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES, num_key_value_heads=2)
    model = transformers.LlamaForCausalLM(config)
    program = compiled(model)
    texts = rows(20, seed=8)
    found = program.evaluate(texts)
    assert found.measure == "tokens"
    assert found.agreement >= 0.98 and found.stage("polynomials").divergence < 1e-3
    assert not found.unsafe


@pytest.mark.deep("search")
def test_the_measure_may_be_chosen() -> None:
    model = classifier()
    settings: Any = compiled(model, measure="values").bundle.manifest.settings
    assert settings["promise"]["agreement"] == "values"
    with pytest.raises(AtlasError, match='measure="tokens" does not suit the model'):
        compiled(model, measure="tokens")
    with pytest.raises(AtlasError, match="measure cannot be 'score'"):
        compiled(model, options=atlasc.CompileOptions(measure="score"))


def test_labels_are_numbers_names_or_values() -> None:
    config = SimpleNamespace(id2label={"0": "Low", "1": "high"}, label2id={"Low": 0})

    def found(labels: Any, measure: Any = "class", outputs: int = 2) -> Any:
        inputs = Inputs({}, tuple(map(str, range(len(labels)))), np.array(labels, dtype=object))
        return labels_of(inputs, config, measure, outputs)

    read = found([0, "1", "Low", "HIGH", 1.0, None, "", float("nan"), True])
    assert read.values[:5].tolist() == [0, 1, 0, 1, 1] and read.values[8] == 1
    assert np.isnan(read.values[5:8]).all() and not read.faults and read.known == 6
    bad = found(["medium", 2, -1, 0.5])
    assert bad.known == 0 and list(bad.faults) == [0, 1, 2, 3]
    assert bad.faults[0] == "the model has no class 'medium'; it has 'Low', 'high'"
    assert "has no class 'LABEL_1'; it has 'Low'" in found(["LABEL_1"]).faults[0]
    plain = Inputs({}, ("a", "b"), np.array(["LABEL_1", "LABEL_2"], dtype=object))
    bare = labels_of(plain, SimpleNamespace(), "class", 2)  # as transformers calls them then
    assert bare.values[0] == 1
    assert bare.faults == {1: "the model has no class 2; it has 0 to 1"}
    assert found([0.5, "1.5", 2], "values", 1).values.tolist() == [0.5, 1.5, 2]
    assert found([10**400, "1e999", [1]]).known == 0
    assert "is not a number" in found(["much"], "values", 1).faults[0]
    assert "cannot be compared with an answer of 8 numbers" in found([1], "values", 8).faults[0]


def test_intervals() -> None:
    """Wilson's for 8 of 10, and Fisher's for a correlation of 0.5 on 28 pairs."""
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(0, 10)[0] == 0 and wilson(10, 10)[1] == pytest.approx(1)
    assert fisher(0.5, 28) == pytest.approx((0.1560, 0.7358), abs=1e-4)


@pytest.mark.parametrize(
    ("name", "changes", "measure"),
    [
        ("BertModel", {}, "values"),
        ("BertForSequenceClassification", {}, "class"),
        ("BertForSequenceClassification", {"num_labels": 1}, "values"),
        ("BertForSequenceClassification", {"problem_type": "multi_label_classification"}, "values"),
        ("BertForTokenClassification", {}, "tokens"),
        ("BertForMaskedLM", {}, "tokens"),
    ],
)
def test_the_model_tells_what_counts(name: str, changes: dict[str, Any], measure: str) -> None:
    model = getattr(transformers, name)(transformers.BertConfig(**SIZES, **changes))
    loaded = model_of(model.eval())
    assert measure_of(loaded, trace_model(loaded, 1, LENGTH)) == measure
