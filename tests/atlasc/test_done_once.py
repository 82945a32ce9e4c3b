"""Work that is easily done several times is done once: counts of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny_model import Tiny, make_text_bundle, write_ids
from typer.testing import CliRunner

import atlasc
from atlasc.bundle import folder, manifest
from atlasc.cli import app
from atlasc.client import program as client_program
from atlasc.compilation import op_noise
from atlasc.loading.data import inputs_of
from atlasc.loading.models import load_model
from atlasc.loading.texts import rows
from atlasc.program import execute
from atlasc.program.rotation_plan import PLAN_ATTRIBUTES

DIGITS = Path(__file__).parents[2] / "examples/digits_vit"


@pytest.fixture
def no_functions() -> Iterator[None]:
    """Nothing is known of earlier programs of this process."""
    execute._store.cache_clear()
    yield
    execute._store.cache_clear()


def test_a_function_is_recorded_once(
    no_functions: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """For costs by passes, counts, keys and memory together; with plaintexts by noise, emission and
    runs together. The bound of the noise and the report replay it on variances once.
    """
    recorded: Counter[tuple[Any, ...]] = Counter()
    replayed: Counter[tuple[Any, ...]] = Counter()
    replay = op_noise.VarianceEngine.run

    def count_replay(self: Any) -> Any:
        replayed[self._function, self._noise, self._weight, self._size] += 1
        return replay(self)

    monkeypatch.setattr(op_noise.VarianceEngine, "run", count_replay)
    record = execute.Functions._record

    def counted(self: Any, op: Any, levels: Any) -> Any:
        plan = [self._module.attributes.get(name) for name in PLAN_ATTRIBUTES]
        slots = self._context.shape.slots
        key = (self.costs_only, slots, repr(plan), *execute._key(op, self.symbols), levels)
        recorded[key] += 1
        return record(self, op, levels)

    monkeypatch.setattr(execute.Functions, "_record", counted)
    program = atlasc.compile(
        str(DIGITS / "model"), DIGITS / "calibration.npz", recipe="is", target="sim"
    )
    program.save(tmp_path / "saved")
    again = atlasc.load(tmp_path / "saved")
    with np.load(DIGITS / "test.npz") as file:
        again.run(file["pixel_values"][:1])
    again.inspect()
    assert len(recorded) > 200
    assert set(recorded.values()) == {1}
    assert len(replayed) > 20
    assert set(replayed.values()) == {1}


@pytest.mark.parametrize("whole", [True, False], ids=["whole bundle", "client's part"])
def test_encrypt_reads_a_bundle_and_embeds_inputs_once(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    hashed: Counter[Path] = Counter()
    embedded: list[int] = []
    digest, interpret = manifest.sha256_of, client_program.interpret

    def count_digest(path: Path) -> str:
        hashed[path.resolve()] += 1
        return digest(path)

    def count_interpret(module: Any, arrays: Any, *others: Any, **more: Any) -> Any:
        embedded.append(len(next(iter(arrays.values()))))
        return interpret(module, arrays, *others, **more)

    bundle = tiny.bundle
    if not whole:
        atlasc.load(tiny.bundle).save(tmp_path / "part", part="client")
        bundle = tmp_path / "part"
    monkeypatch.setattr(manifest, "sha256_of", count_digest)
    monkeypatch.setattr(client_program, "interpret", count_interpret)
    run = CliRunner().invoke
    keys, query = str(tmp_path / "keys"), str(tmp_path / "query")
    assert run(app, ["keygen", str(bundle), "--keys", keys]).exit_code == 0
    hashed.clear()
    given = ["--input", str(tiny.data), "--index", "3,8", "-o", query]
    result = run(app, ["encrypt", str(bundle), "--keys", keys, *given])
    assert result.exit_code == 0, result.output
    parts = {path.relative_to(bundle.resolve()).parts[0] for path in hashed}
    assert parts == ({"client", "server"} if whole else {"client"})
    assert set(hashed.values()) == {1}
    assert sum(embedded) == 2


@pytest.mark.parametrize(("long", "read"), [("truncate", 2), ("windows", 30)])
def test_only_chosen_texts_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long: str, read: int
) -> None:
    """Where a text may become several inputs, only all of them tell which ones are chosen."""
    bundle = make_text_bundle(tmp_path)
    write_ids(tmp_path / "many.jsonl", [3, 4, 5] * 10)
    seen: list[int] = []
    texts_of = rows.texts_of

    def counted(named: Any, *others: Any, **more: Any) -> Any:
        seen.append(len(named))
        return texts_of(named, *others, **more)

    monkeypatch.setattr("atlasc.loading.data.texts_of", counted)
    given = ["--input", str(tmp_path / "many.jsonl"), "--index", "0,29", "--long", long]
    result = CliRunner().invoke(app, ["check-input", str(bundle), *given])
    assert result.exit_code in (0, 1), result.output
    assert seen == [read]
    assert "many.jsonl:1 " in result.stdout and "many.jsonl:30 " in result.stdout
    more = ["--input", str(tmp_path / "many.jsonl"), "--index", "30"]
    result = CliRunner().invoke(app, ["check-input", str(bundle), *more])
    assert result.exit_code == 2 and "it has the inputs 0 to 29" in result.output


@pytest.mark.parametrize("kind", ["texts", "image", "arrays"])
def test_an_input_may_be_chosen_twice(tiny: Tiny, tmp_path: Path, kind: str) -> None:
    """As often as it is named, whatever it is read from."""
    if kind == "texts":
        bundle = folder.load_bundle(make_text_bundle(tmp_path))
        write_ids(tmp_path / "ids.jsonl", [3, 4, 5])
        source: Path = tmp_path / "ids.jsonl"
    else:
        bundle, source = folder.load_bundle(tiny.bundle), tiny.data
    numbers = [2, 0, 2]
    if kind == "image":  # the small model does not say how images are prepared
        source, numbers = tmp_path / "picture.png", [0, 0]
        Image.new("L", (8, 8)).save(source)
        model = load_model(str(DIGITS / "model"))
    else:
        model = bundle.model
    every, chosen = inputs_of(source, model), inputs_of(source, model, choice=lambda _: numbers)
    assert chosen.names == every.take(numbers).names
    for name, array in every.take(numbers).arrays.items():
        np.testing.assert_array_equal(chosen.arrays[name], array)
