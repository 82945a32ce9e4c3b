"""The Python interface: a model in memory to answers, and every refusal as AtlasError."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_model import Tiny, simulated

import atlasc
from atlasc.api.errors import as_atlas_error
from atlasc.compilation.declared import ALL_MEMORY, options_of
from atlasc.compilation.options import CompileOptions
from tests.atlasc.cli.command import DATA, MODEL, ROOT, run


@pytest.fixture(autouse=True)
def silent(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Nothing is ever printed."""
    yield
    assert capfd.readouterr() == ("", "")


@pytest.fixture(scope="module")
def program(tiny: Tiny) -> atlasc.Program:
    return atlasc.load(tiny.bundle)


@pytest.fixture(scope="module")
def pixels(tiny: Tiny) -> np.ndarray:
    with np.load(tiny.data) as file:
        return file["pixel_values"]


def test_the_package_is_imported_at_once() -> None:
    code = (
        "import time, sys\n"
        "started = time.perf_counter()\n"
        "import atlasc\n"
        "assert callable(atlasc.AtlasError) and 'compile' in dir(atlasc)\n"
        "seconds = time.perf_counter() - started\n"
        "print(seconds, sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    seconds, _, names = done.stdout.partition(" ")
    assert float(seconds) < 0.3
    assert not {"torch", "numpy", "transformers", "typer", "pydantic"} & set(eval(names))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = atlasc.nothing  # type: ignore[attr-defined]
    for name in atlasc.__all__:
        assert getattr(atlasc, name).__doc__


# --- a model in memory


@pytest.fixture(scope="module")
def compiled() -> tuple[atlasc.Program, np.ndarray, list[tuple[str, int, int | None]]]:
    """A HuggingFace model compiled from memory, and the calls of its progress."""
    from transformers import AutoModelForImageClassification

    model = AutoModelForImageClassification.from_pretrained(str(MODEL)).train()
    with np.load(DATA) as file:
        images = file["pixel_values"]
    calls: list[tuple[str, int, int | None]] = []
    program = atlasc.compile(
        model, images, recipe="is", target="sim", batch=2, key_memory="4G",
        progress=lambda *call: calls.append(call),
    )  # fmt: skip
    assert model.training  # as it was
    return program, images, calls


def test_compile_and_run_a_model_in_memory(
    compiled: tuple[atlasc.Program, np.ndarray, list[tuple[str, int, int | None]]],
) -> None:
    program, images, calls = compiled
    assert program.target == "sim" and program.batch == 2
    result = program.run(images[:3])
    assert result.outputs["logits"].shape == (3, 10)
    assert result.max_error < 1e-6 and not result.refused and not result.warnings
    assert set(result.seconds) == {"keys", "encrypt", "execute", "decrypt"}
    assert result.errors["logits"].shape == (3,)
    costs = program.inspect()
    assert costs["depth"] == 101 and costs["nominal_ranges"] is False
    labels = [what for what, _, _ in calls]
    assert "tracing" in labels and any(label.startswith("lowering: ") for label in labels)


def test_a_saved_program_is_that_of_the_command_line(
    compiled: tuple[atlasc.Program, np.ndarray, list[Any]], tmp_path: Path
) -> None:
    program, images, _ = compiled
    program.save(tmp_path / "digits")
    again = atlasc.load(tmp_path / "digits")
    assert again.bundle.identity == program.bundle.identity
    np.testing.assert_array_equal(
        again.run(images[:2]).outputs["logits"], program.run(images[:2]).outputs["logits"]
    )
    found = json.loads(run("inspect", tmp_path / "digits", "--json").out)
    assert found["levels"] == program.inspect()["levels"]
    with pytest.raises(atlasc.AtlasError, match="exists already"):
        program.save(tmp_path / "digits")


def test_parts_of_a_program(program: atlasc.Program, pixels: np.ndarray, tmp_path: Path) -> None:
    """A part is loaded, and enough for its role; for more, the message says which part it lacks."""
    for role in ("client", "server"):
        program.save(tmp_path / role, part=role)
    mine, theirs = atlasc.load(tmp_path / "client"), atlasc.load(tmp_path / "server")
    atlasc.keygen(mine, tmp_path / "keys")
    client, server = (
        atlasc.Client(mine, tmp_path / "keys"),
        atlasc.Server(theirs, tmp_path / "keys"),
    )
    found = client.decrypt(server.execute(client.encrypt(pixels[:2])))
    np.testing.assert_allclose(found.outputs["output"], program.run(pixels[:2]).outputs["output"])
    assert theirs.inspect()["levels"] == program.inspect()["levels"]
    for call, lacking in (
        (lambda: mine.run(pixels[:2]), "server/"),
        (mine.inspect, "server/"),
        (lambda: theirs.run(pixels[:2]), "client/"),
        (lambda: atlasc.Client(theirs, tmp_path / "keys"), "client/"),
        (lambda: atlasc.Server(mine, tmp_path / "keys"), "server/"),
        (lambda: mine.save(tmp_path / "other", part="server"), "server/"),
    ):
        with pytest.raises(atlasc.AtlasError, match=f"lacks {lacking}") as caught:
            call()
        assert "Program.save(part=...)" in caught.value.remedy
    with pytest.raises(atlasc.AtlasError, match="ranges cannot be checked here"):
        mine.check(pixels[:2])
    assert atlasc.load(tmp_path / "client" / "client").bundle.identity == mine.bundle.identity
    (tmp_path / "client" / "manifest.json").unlink()
    for folder in (tmp_path / "client", tmp_path / "client" / "client"):
        with pytest.raises(atlasc.AtlasError, match="is not a compiled bundle") as caught:
            atlasc.load(folder)
        assert "its client folder with manifest.json beside it" in caught.value.remedy


def test_a_notebook_shows_a_summary(program: atlasc.Program) -> None:
    page = program._repr_html_()
    for words in ("tiny", "sim", "levels", "bootstraps", "predicted seconds", "error"):
        assert words in page
    assert "<atlasc.Program: model tiny" in repr(program)


def test_a_plain_module(pixels: np.ndarray) -> None:
    import torch

    class Scores(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(64, 8), torch.nn.Linear(8, 3)

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return self.second(torch.nn.functional.gelu(self.first(pixels)))

    torch.manual_seed(0)
    model, data = Scores().eval(), torch.tensor(pixels.reshape(len(pixels), 64))
    program = atlasc.compile(model, data, recipe="is", target="sim")
    outputs = program.run({"pixels": data[:2]}).outputs
    with torch.no_grad():
        expected = model(data[:2]).numpy()
    assert np.abs(outputs["output"] - expected).max() < 1e-3


# --- inputs


def test_inputs_may_be_arrays_tensors_or_paths(
    tiny: Tiny, program: atlasc.Program, pixels: np.ndarray
) -> None:
    import torch

    expected = simulated(program.bundle, tiny.data, [0, 1])["output"]
    for data in (
        pixels[:2], torch.tensor(pixels[:2]), {"pixel_values": pixels[:2]}, pixels[:2].tolist()
    ):  # fmt: skip
        data = np.asarray(data, np.float32) if isinstance(data, list) else data
        assert np.abs(program.run(data).outputs["output"] - expected).max() < 1e-9
    assert len(program.run(str(tiny.data)).outputs["output"]) == len(pixels)


def test_inputs_that_are_refused_keep_their_rows(
    program: atlasc.Program, pixels: np.ndarray
) -> None:
    images = pixels[:4].copy()
    images[1] *= 60
    images[2, 0, 0, 0] = np.nan
    result = program.run(images)
    assert set(result.refused) == {1, 2}
    assert "41.4 times" in result.refused[1] and "not finite" in result.refused[2]
    assert np.isnan(result.outputs["output"][[1, 2]]).all()
    assert np.isfinite(result.outputs["output"][[0, 3]]).all()
    assert len(result.warnings) == 1 and "2 inputs are left out" in result.warnings[0]
    with pytest.raises(atlasc.AtlasError, match="2 inputs are not fit to be encrypted"):
        program.run(images, strict=True)


def test_check_judges_each_input(program: atlasc.Program, pixels: np.ndarray) -> None:
    images = pixels[:3].copy()
    images[1] *= 60
    images[2] = pixels[1] * 4
    verdicts = program.check(images)
    assert [verdict.safe for verdict in verdicts] == [True, False, False]
    assert "41.4 times" in verdicts[1].fault
    assert verdicts[2].first is not None


# --- client and server


@pytest.fixture(scope="module")
def keys(program: atlasc.Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys") / "keys"
    atlasc.keygen(program, folder)
    return folder


def test_client_and_server_pass_bytes(
    tiny: Tiny, program: atlasc.Program, keys: Path, pixels: np.ndarray
) -> None:
    client = atlasc.Client(tiny.bundle / "client", keys / "client")
    server = atlasc.Server(program, keys / "server")
    calls: list[tuple[str, int, int]] = []
    query = client.encrypt(pixels[:2])
    answer = server.execute(query, progress=lambda *call: calls.append(call))
    assert isinstance(query, bytes) and isinstance(answer, bytes) and calls
    outputs = client.decrypt(answer).outputs
    expected = program.run(pixels[:2]).outputs
    assert np.abs(outputs["output"] - expected["output"]).max() < 1e-6


def test_client_and_server_refuse(
    program: atlasc.Program, keys: Path, pixels: np.ndarray, tmp_path: Path
) -> None:
    client, server = atlasc.Client(program, keys), atlasc.Server(program, keys)
    query = client.encrypt(pixels[:1])
    answer = server.execute(query)
    client.decrypt(answer)
    other = atlasc.keygen(program, tmp_path / "other")
    assert other is None
    stranger = atlasc.Client(program, tmp_path / "other")
    refusals: list[tuple[Callable[[], object], str]] = [
        (lambda: client.encrypt(pixels[:3]), "the program answers 1 to 2"),
        (lambda: client.encrypt(pixels[:1] * 60), "not fit to be encrypted"),
        (lambda: client.encrypt(["a text"]), "pixel_values"),
        (lambda: server.execute(b""), "the message is damaged"),
        (lambda: server.execute(query[:-100]), "the message is damaged"),
        (lambda: server.execute(answer), "the message is no query"),
        (lambda: client.decrypt(query), "the message is no answer"),
        (lambda: stranger.decrypt(answer), "not the answer to a query of these keys"),
        (lambda: atlasc.keygen(program, keys), "exists already"),
        (lambda: atlasc.Client(program, tmp_path / "none"), "not found"),
        (lambda: atlasc.Client(program, keys, target="gpu"), "no target 'gpu'"),
    ]
    for refused, message in refusals:
        with pytest.raises(atlasc.AtlasError, match=message):
            refused()
    damaged = bytearray(query)
    damaged[len(damaged) // 2] ^= 1
    with pytest.raises(atlasc.AtlasError):
        server.execute(bytes(damaged))


# --- what the command line refuses


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "gpu"}, "no target 'gpu'"),
        ({"recipe": "wrong"}, "no recipe 'wrong'"),
        ({"strategy": "wrong"}, "no search strategy 'wrong'"),
        ({"cost": "money"}, "cost cannot be 'money'"),
        ({"space": "deep"}, "space cannot be 'deep'"),
        ({"degrees": "odd"}, "degrees cannot be 'odd'"),
        ({"workers": "many"}, "workers cannot be 'many'"),
        ({"worker_count": 2}, 'worker_count needs workers="ray"'),
        ({"recipe": "is", "evaluations": 9}, "recipe and evaluations exclude each other"),
        ({"recipe": "is", "front": "x"}, "recipe and front exclude each other"),
        ({"recipe": "is", "max_seconds": 3}, "recipe and max_seconds exclude each other"),
        ({"cost": "depth", "max_seconds": 3}, 'max_seconds and cost="depth" exclude each other'),
        ({"key_memory": "lots"}, "is not a size of memory"),
        ({"device_memory": "4G"}, "has no effect on the target sim"),
        ({"generate": True, "batch": 2}, "generate=True and batch=2 exclude each other"),
        (
            {"device_memory": "4G", "key_memory": "1G", "target": "phantom"},
            "device_memory and key_memory exclude each other",
        ),
        ({"batch": 0}, "batch cannot be 0"),
        ({"sequence_length": 0}, "sequence_length cannot be 0"),
        ({"max_error": math.nan}, "max_error cannot be nan"),
        ({"batch": "many"}, "batch cannot be 'many'"),
        ({"margin": -1}, "margin cannot be -1"),
        ({"held_back": 1.5}, "held_back cannot be 1.5"),
        ({"tolerated": -1}, "tolerated cannot be -1"),
        ({"name": "a/b"}, "name cannot be 'a/b'"),
        ({"name": "a" * 65}, "name cannot be"),
        ({"front": "nothing"}, "the front nothing was not found"),
        ({"maxerror": 1}, "there is no option 'maxerror'"),
    ],
)
def test_options_are_refused_before_any_work(options: dict[str, Any], message: str) -> None:
    with pytest.raises(atlasc.AtlasError, match=message) as caught:
        atlasc.compile("no such model", "no data", **{"target": "sim", **options})
    assert caught.value.remedy or caught.value.why


def test_a_near_miss_is_suggested() -> None:
    with pytest.raises(atlasc.AtlasError) as caught:
        options_of(CompileOptions, {"maxerror": 1})
    assert "max_error" in caught.value.remedy


def test_options_are_parsed_once() -> None:
    base = CompileOptions(batch=4)
    options = options_of(CompileOptions, {"key_memory": "all", "front": "x", "seed": None}, base)
    assert (options.key_memory, options.front, options.batch) == (ALL_MEMORY, Path("x"), 4)
    assert options.seed == 0 and options.minimised == "latency"
    assert options_of(CompileOptions, {"max_levels": 9}).minimised == "levels"
    assert options_of(CompileOptions, {"max_seconds": 9}).minimised == "latency"


def test_models_data_and_folders_are_refused(
    program: atlasc.Program, pixels: np.ndarray, tmp_path: Path
) -> None:
    import torch

    torch.save(torch.nn.Linear(2, 2), tmp_path / "model.pt")
    refusals: list[tuple[Callable[[], object], str]] = [
        (lambda: atlasc.compile(tmp_path / "none", DATA), "not found"),
        (lambda: atlasc.compile(MODEL, DATA, sequence_length=8), "is for texts"),
        (lambda: atlasc.compile(MODEL, DATA, recipe="is", batch=100_000), "need 2.* slots"),
        (lambda: atlasc.compile(tmp_path / "model.pt", DATA), "pickled object"),
        (lambda: atlasc.compile(3, DATA), "not a model"),  # type: ignore[arg-type]
        (lambda: atlasc.compile(MODEL, DATA, tokenizer=object()), "tokenizer"),
        (lambda: atlasc.compile(MODEL, tmp_path / "none.npz"), "not found"),
        (lambda: atlasc.compile(MODEL, pixels[:1]), "at least 2 are needed"),
        (lambda: atlasc.compile(MODEL, np.zeros_like(pixels)), "are identical"),
        (lambda: atlasc.compile(MODEL, ["texts"]), "pixel_values"),
        (lambda: atlasc.load(tmp_path), "is not a compiled bundle"),
        (lambda: atlasc.load(tmp_path / "none"), "not found"),
        (lambda: program.run({"pixels": pixels}), "does not have the model's inputs"),
        (lambda: program.run(pixels[:, :, :4]), "images of shape"),
        (lambda: program.run(pixels * 60), "not fit to be encrypted"),
        (lambda: program.run(pixels, target="gpu"), "no target 'gpu'"),
        (lambda: program.run(pixels, target="phantom"), "no engine for phantom here"),
        (lambda: program.run(pixels, "sim", project=tmp_path), "exclude each other"),
        (lambda: program.run(tmp_path / "none.npz"), "not found"),
    ]
    for refused, message in refusals:
        with pytest.raises(atlasc.AtlasError, match=message):
            refused()
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]


def test_a_recipe_outside_the_limits_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(atlasc.AtlasError, match="the recipe is has depth 101"):
        atlasc.compile(MODEL, DATA, recipe="is", target="sim", max_error=1e-12)
    assert list(tmp_path.iterdir()) == []


def test_errors_of_the_system_are_said_as_all_others() -> None:
    full = as_atlas_error(OSError(28, "No space left on device", "x"))
    assert full is not None and full.where == "x" and "make room" in full.remedy
    memory = as_atlas_error(MemoryError())
    assert memory is not None and memory.what == "not enough memory"
    assert as_atlas_error(ZeroDivisionError()) is None
