"""Data and preprocessing from somebody else: refused in one message, before memory is taken."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from small_files import TINY

from atlasc.ir.errors import AtlasError
from atlasc.loading.client import client_model
from atlasc.loading.data import inputs_of
from atlasc.loading.loaded_model import LoadedModel
from atlasc.loading.models import load_model


def stand_in(folder: Path, main: str, **config: object) -> LoadedModel:
    module = SimpleNamespace(main_input_name=main)
    return LoadedModel(module, "any", SimpleNamespace(**config), folder)  # type: ignore[arg-type]


@pytest.fixture
def texts(tmp_path: Path) -> LoadedModel:
    return stand_in(tmp_path, "input_ids", vocab_size=11, max_position_embeddings=16)


@pytest.fixture
def images(tmp_path: Path) -> LoadedModel:
    return stand_in(tmp_path, "pixel_values", model_type="vit", image_size=4, num_channels=3)


def zeros(path: Path, shape: tuple[int, ...]) -> Path:
    """A small .npz that expands to float64 zeros of a shape."""
    header = io.BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, about)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pixel_values.npy", header.getvalue() + bytes(8 * int(np.prod(shape))))
    return path


def test_npz_that_expands_is_refused_before_it_does(
    images: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atlasc.loading.data.MAX_ARRAYS", 1 << 26)
    path = zeros(tmp_path / "bomb.npz", (1 << 12, 3, 32, 32))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(AtlasError, match="bomb.npz is too large"):
        inputs_of(path, images)


@pytest.mark.parametrize("name", ["x.npz", "x.txt", "x.jsonl", "x.png"])
def test_link_to_a_device_is_not_read(tmp_path: Path, name: str) -> None:
    main = "pixel_values" if name.endswith("png") else "input_ids"
    (tmp_path / "preprocessor_config.json").write_text('{"size": 4}')
    model = stand_in(tmp_path, main, model_type="vit")
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(AtlasError, match="not a plain file"):
        inputs_of(tmp_path / name, model)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"input_ids": [1], "input_ids": [2]}', "given twice"),
        ('{"input_ids": [1], "other": NaN}', "NaN"),
        ('{"input_ids": [1], "other": ' + "[" * 2000 + "]" * 2000 + "}", "recursion"),
        ('{"input_ids": [1], "other": ' + "9" * 5000 + "}", "not a JSON object"),
        ('{"input_ids": [' + "9" * 30 + "]}", "64-bit integers"),
        ('{"input_ids": [1], "label": ' + "9" * 30 + "}", "label has more than 64 bits"),
        ('{"input_ids": [' + "1," * (1 << 19) + "1]}", "longer than any input"),
    ],
)
def test_json_line_that_is_no_input(
    texts: LoadedModel, tmp_path: Path, line: str, reason: str
) -> None:
    (tmp_path / "t.jsonl").write_text('{"input_ids": [1], "label": 1, "idx": 2}\n' + line)
    with pytest.raises(AtlasError, match=reason) as caught:
        inputs_of(tmp_path / "t.jsonl", texts)
    assert "t.jsonl:2" in str(caught.value)


def test_padding_takes_no_memory_without_end(tmp_path: Path) -> None:
    rows = "\n".join(['{"input_ids": [1]}'] * 100_000)
    (tmp_path / "t.jsonl").write_text(rows)
    model = stand_in(tmp_path, "input_ids")
    with pytest.raises(AtlasError, match="more than fit into memory"):
        inputs_of(tmp_path / "t.jsonl", model, 1 << 20)


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"input_ids": np.full((1, 4), 2**64 - 1, np.uint64)}, "not in the model's vocabulary"),
        ({"input_ids": np.ones((1, 4), int), "labels": np.ones(1, complex)}, "labels must be"),
    ],
)
def test_odd_arrays(texts: LoadedModel, tmp_path: Path, arrays: dict, reason: str) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(AtlasError, match=reason):
        inputs_of(tmp_path / "x.npz", texts)


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.array([[1.0], [np.nan]]), r"x.npz\[1\](.|\n)*not finite"),
        (np.array([[1.0], [-np.inf]]), "not finite"),
        (np.array([["a"], ["b"]]), "must hold numbers"),
    ],
)
def test_inputs_of_any_name_are_finite_numbers(
    tmp_path: Path, array: np.ndarray, reason: str
) -> None:
    np.savez(tmp_path / "x.npz", features=array)
    with pytest.raises(AtlasError, match=reason):
        inputs_of(tmp_path / "x.npz", stand_in(tmp_path, "features")).require_finite()


def test_pixels_that_float32_cannot_hold(images: LoadedModel, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", pixel_values=np.full((1, 3, 4, 4), 1e300))
    with pytest.raises(AtlasError, match="not finite"):
        inputs_of(tmp_path / "x.npz", images).require_finite()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"size": 10000000}', "less than or equal to 4096"),
        ('{"size": {"height": 0, "width": 4}}', "cannot be read"),
        ('{"size": {"height": "4", "width": 4}}', "cannot be read"),
        ('{"size": 4, "image_std": [0, 1, 1]}', "greater than 0.000001"),
        ('{"size": 4, "image_mean": [NaN, 1, 1]}', "NaN is not a JSON number"),
        ('{"size": 4, "image_mean": [1, 1]}', "does not fit the image"),
        ('{"size": 4, "resample": 77}', "less than or equal to 5"),
        ('{"size": 4, "do_resize": "no"}', "valid boolean"),
        ('{"size": 4, "rescale_factor": 1e400}', "too large for a number"),
        ('{"size": 4, "x": ' + "[" * 2000 + "]" * 2000 + "}", "recursion"),
        ("[]", "cannot be read"),
    ],
)
def test_preprocessing_has_limits(
    images: LoadedModel, tmp_path: Path, text: str, reason: str
) -> None:
    (tmp_path / "preprocessor_config.json").write_text(text)
    Image.new("RGB", (4, 4)).save(tmp_path / "x.png")
    with pytest.raises(AtlasError, match=reason):
        inputs_of(tmp_path / "x.png", images)


def test_images_of_other_formats_bombs_and_pieces_are_refused(
    images: LoadedModel, tmp_path: Path
) -> None:
    (tmp_path / "preprocessor_config.json").write_text('{"size": 4, "image_mean": [0, 0, 0]}')
    Image.new("RGB", (4, 4)).save(tmp_path / "x.ppm")
    (tmp_path / "ppm.png").write_bytes((tmp_path / "x.ppm").read_bytes())
    Image.new("L", (10_000, 10_000)).save(tmp_path / "bomb.png")
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:5000])
    for name in ("ppm.png", "bomb.png", "cut.png"):
        with pytest.raises(AtlasError, match=f"image {name} cannot be read"):
            inputs_of(tmp_path / name, images)


def test_tokenizer_that_panics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        """As pyo3's PanicException: no Exception."""

    def tokenize(*_: object, **__: object) -> None:
        raise Panic("index out of bounds")

    model = stand_in(tmp_path, "input_ids")
    model.__dict__["tokenizer"] = tokenize
    with pytest.raises(AtlasError, match="tokenizer cannot be read(.|\n)*out of bounds"):
        inputs_of(["a"], model)


def test_tokenizer_file_that_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "merges.txt").symlink_to("/dev/zero")
    with pytest.raises(AtlasError, match="not a plain file"):
        _ = stand_in(tmp_path, "input_ids").tokenizer


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "cannot be read"),
        ('{"a": 1, "a": 2}', "given twice"),
        ('{"vocab_size": "x"}', "vocab_size of config.json is 'x', not a size"),
        ('{"max_position_embeddings": [1]}', "not a size"),
    ],
)
def test_config_of_a_bundles_client(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "config.json").write_text(text)
    (tmp_path / "ids.jsonl").write_text('{"input_ids": [1]}')
    ids: Any = SimpleNamespace(attributes={"name": "input_ids", "shape": (1, 4)})
    with pytest.raises(AtlasError, match=reason):
        inputs_of(tmp_path / "ids.jsonl", client_model([ids], tmp_path))


def test_config_of_a_bundles_client_may_be_no_link(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / "config.json").symlink_to(tmp_path / "real.json")
    with pytest.raises(AtlasError, match="the path is a link"):
        client_model([], tmp_path)


def test_image_size_that_is_no_size(tmp_path: Path) -> None:
    from atlasc.compilation.prepare import input_specs

    with pytest.raises(AtlasError, match="not a size"):
        input_specs(stand_in(tmp_path, "pixel_values", image_size="x"))


def test_state_dictionary_that_the_config_does_not_fit(tmp_path: Path) -> None:
    config = {"model_type": "bert", "architectures": ["BertModel"], "vocab_size": 1 << 24, **TINY}
    (tmp_path / "config.json").write_text(json.dumps(config))
    torch.save({"a": torch.ones(2)}, tmp_path / "model.pt")
    with pytest.raises(AtlasError, match="larger model than its weights"):
        load_model(tmp_path / "model.pt")
