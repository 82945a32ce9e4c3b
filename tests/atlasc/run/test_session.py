"""Running a program in one process: batches, progress, and texts with their masks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from tiny_model import LENGTH, Tiny, simulated, write_ids
from typer.testing import CliRunner

from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.cli import app
from atlasc.client.verdict import verdicts
from atlasc.ir.errors import AtlasError
from atlasc.progress import steps_of
from atlasc.run import session
from atlasc.run.timing import Course, Pace
from atlasc.targets import find_target
from atlasc.targets.base import no_progress


@pytest.fixture(scope="module")
def bundle(tiny: Tiny) -> Bundle:
    return load_bundle(tiny.bundle)


def arrays_of(tiny: Tiny, bundle: Bundle, count: int) -> dict[str, np.ndarray]:
    return bundle.load_inputs(tiny.data).take(range(count)).arrays


@pytest.mark.parametrize("count", [1, 2, 5])
def test_any_number_of_inputs_is_answered_in_batches(
    tiny: Tiny, bundle: Bundle, count: int
) -> None:
    answer = session.run(bundle, arrays_of(tiny, bundle, count))
    assert answer.outputs["output"].shape == (count, 3)
    expected = simulated(bundle, tiny.data, list(range(count)))["output"]
    assert np.abs(answer.outputs["output"] - expected).max() <= 1e-12
    assert answer.max_error == np.abs(answer.outputs["output"] - expected).max()
    assert answer.mean_error <= answer.max_error
    assert set(answer.seconds) == {"keys", "encrypt", "execute", "decrypt"}


def test_the_answer_is_close_to_the_original_model(tiny: Tiny, bundle: Bundle) -> None:
    import torch

    arrays = arrays_of(tiny, bundle, 4)
    model = torch.export.load(tiny.archive).module()
    pixels = torch.from_numpy(arrays["pixel_values"])
    original = np.concatenate(
        [model(pixel_values=part).detach().numpy() for part in pixels.split(2)]
    )
    answer = session.run(bundle, arrays)
    assert np.abs(answer.outputs["output"] - original).max() < 0.05


def test_progress_covers_all_batches_and_ends_before_100(tiny: Tiny, bundle: Bundle) -> None:
    steps: list[tuple[str, int, int]] = []
    callback = steps_of(lambda *step: steps.append(step))
    session.run(bundle, arrays_of(tiny, bundle, 4), steps=callback)
    steps = [step for step in steps if step[0].startswith("running on sim: ")]
    assert len(steps) == 2 * len(bundle.server.calls)
    done = [step[1] for step in steps]
    assert done == sorted(done)
    assert (done[0], steps[0][2]) == (0, 100)
    assert 45 <= done[len(done) // 2] <= 55
    assert 90 <= done[-1] < 100


def test_an_op_counts_as_much_as_it_is_predicted_to_last(bundle: Bundle) -> None:
    steps: list[int] = []
    calls = bundle.server.calls
    course = Course.stored(bundle.server)
    pace = Pace(course, find_target("cpu"), 1, lambda what, done, total: steps.append(done))
    for call in calls:
        pace(call)
    jumps = dict(zip((call.name for call in calls), np.diff([*steps, 100])))
    assert max(jumps, key=jumps.__getitem__) in ("ckks.linear_transform", "ckks.row_scores")
    assert jumps["ckks.add_plain"] <= 1


def test_an_engine_serves_several_runs(tiny: Tiny, bundle: Bundle) -> None:
    parameters = bundle.parameters
    engine = find_target("sim").make_engine(bundle.program, parameters, no_progress)
    arrays = arrays_of(tiny, bundle, 2)
    first, second = (session.run(bundle, arrays, engine=engine) for _ in range(2))
    assert np.array_equal(first.outputs["output"], second.outputs["output"])
    with pytest.raises(AtlasError, match="no target"):
        find_target("paper").make_engine(bundle.program, parameters, no_progress)


def test_simulated_noise_is_small_and_there(tiny: Tiny, bundle: Bundle) -> None:
    parameters = bundle.parameters
    noisy = find_target("sim").make_engine(bundle.program, parameters, no_progress, noise=True)
    answer = session.run(bundle, arrays_of(tiny, bundle, 2), engine=noisy)
    assert 1e-9 < answer.max_error < 1e-5


# --- ranges


def test_every_polynomial_is_watched(tiny: Tiny, bundle: Bundle) -> None:
    arrays = arrays_of(tiny, bundle, 3)
    assert all(verdict.safe for verdict in verdicts(bundle.client, bundle.poly, arrays))
    factors = np.array([1, 1, 30], np.float32).reshape(3, 1, 1, 1)
    wild = {"pixel_values": arrays["pixel_values"] * factors}
    *others, last = verdicts(bundle.client, bundle.poly, wild, ["a", "b", "c"])
    assert all(verdict.safe and not verdict.excesses for verdict in others)
    assert last.input == "c" and not last.safe
    assert len(last.excesses) == sum(op.name == "poly.chebyshev" for op in bundle.poly.ops)
    assert all(excess.share > 0 for excess in last.excesses)
    assert last.why.startswith("an argument of softmax in the model reaches")


# --- texts: embedding on the client, a public mask


@pytest.fixture(scope="module")
def text_bundle(texts: Path) -> Path:
    return texts / "bundle"


def run(bundle: Path, data: Path) -> Result:
    return CliRunner().invoke(app, ["run", str(bundle), "--input", str(data), "--json"])


def test_texts_of_different_lengths_are_answered(text_bundle: Path, tmp_path: Path) -> None:
    write_ids(tmp_path / "ids.jsonl", [3, 6, 4])
    result = run(text_bundle, tmp_path / "ids.jsonl")
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout)
    assert np.shape(record["outputs"]["last_hidden_state"]) == (3, LENGTH, 8)
    assert record["max_error"] <= 1e-9


def test_padding_does_not_change_a_text(text_bundle: Path) -> None:
    bundle = load_bundle(text_bundle)
    ids = np.array([[7, 8, 9, 0, 0, 0], [7, 8, 9, 11, 12, 13]])
    mask = np.array([[1, 1, 1, 0, 0, 0]] * 2)
    segments = np.zeros_like(ids)
    arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
    answer = session.run(bundle, arrays)
    states = answer.outputs["last_hidden_state"][:, :3]
    assert np.abs(states[0] - states[1]).max() <= 1e-9


def test_an_id_outside_the_vocabulary(text_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"input_ids": [1, 40]}\n')
    result = run(text_bundle, tmp_path / "bad.jsonl")
    assert result.exit_code == 2
    assert "token id 40 is not in the model's vocabulary" in result.stderr


def test_raw_text_needs_a_tokenizer(text_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("hello\n")
    result = run(text_bundle, tmp_path / "texts.txt")
    assert result.exit_code == 2
    assert "has no tokenizer" in result.stderr
