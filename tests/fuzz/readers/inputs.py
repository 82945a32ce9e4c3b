"""Inputs of a model: arrays, ids, texts and images; and how images are scaled."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from atlasc.demo.visit import Asked, _image
from atlasc.ir.files import MIB, read_json
from atlasc.ir.text.parser import parse
from atlasc.loading.client import client_model
from atlasc.loading.data import inputs_of
from atlasc.loading.loaded_model import LoadedModel
from tests.fuzz.reader import Reader
from tests.fuzz.seeds import DIGITS, files

EMBED = """module @m : nn {{
  %x = nn.input {{name = "{name}", shape = [1, {shape}], side = "client", dtype = "{dtype}"}} :
    tensor<1x{extents}x{dtype}, client>
  nn.output %x {{name = "y"}}
}}
"""
IDS = [{"input_ids": [1, 2, 3], "label": 0}, {"input_ids": [4], "label": 1}]


class Words:
    """Stands for a tokenizer: a word's id is its length."""

    pad_token_id = 0

    def __call__(self, texts: list[str], **options: object) -> dict[str, list[list[int]]]:
        return {"input_ids": [[len(word) % 50 for word in text.split()] for text in texts]}


def _model(name: str, shape: str, dtype: str, folder: Path = DIGITS / "model") -> LoadedModel:
    config: Any = SimpleNamespace(
        image_size=8, num_channels=1, vocab_size=50, max_position_embeddings=64, pad_token_id=0
    )
    extents = shape.replace(", ", "x")
    text = EMBED.format(name=name, shape=shape, dtype=dtype, extents=extents)
    model = dataclasses.replace(client_model(parse(text).inputs, folder), config=config)
    model.__dict__["tokenizer"] = Words()
    return model


TEXTS, IMAGES = _model("input_ids", "8", "i64"), _model("pixel_values", "1, 8, 8", "f64")


def _arrays(path: Path | io.BytesIO, **arrays: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _npz(folder: Path) -> list[Path]:
    pixels = np.random.default_rng(0).random((2, 1, 8, 8)).astype(np.float32)
    contents = {"images.npz": _arrays(folder, pixel_values=pixels, labels=np.array([1, 2]))}
    ids = np.arange(8).reshape(2, 4)
    contents["ids.npz"] = _arrays(folder, input_ids=ids, attention_mask=np.ones_like(ids))
    return list(files(dict(contents))(folder))


def _image_files(folder: Path) -> list[Path]:
    from PIL import Image

    pixels = (np.arange(64).reshape(8, 8) * 4).astype(np.uint8)
    for name in ("a.png", "b.jpg"):
        Image.fromarray(pixels).save(folder / name)
    Image.fromarray(pixels).convert("P").save(folder / "c.png")
    return [folder / name for name in ("a.png", "b.jpg", "c.png")]


def _scaling(folder: Path) -> list[Path]:
    (folder / "model").mkdir()
    shutil.copy(DIGITS / "model" / "preprocessor_config.json", folder / "model")
    shutil.copy(_image_files(folder)[0], folder / "model")
    return [folder / "model"]


def _read(path: Path) -> object:
    model = IMAGES if path.name.startswith("images") or path.suffix in (".png", ".jpg") else TEXTS
    return inputs_of(path, model, None if model is IMAGES else 8).digest()


def _recordings(folder: Path) -> list[Path]:
    import soundfile

    samples = np.sin(np.arange(900) / 5) / 2
    for name in ("a.wav", "b.flac"):
        soundfile.write(folder / name, samples, 16_000)
    return [folder / name for name in ("a.wav", "b.flac")]


def _recorded(path: Path) -> object:
    from atlasc.loading.audio.reading import read_recording

    return len(read_recording(path, path.name, 16_000, [].append))


def _scaled(folder: Path) -> object:
    return inputs_of(folder / "a.png", _model("pixel_values", "1, 8, 8", "f64", folder)).digest()


def _pictures(folder: Path) -> list[Path]:
    for place in _image_files(folder):
        image = base64.b64encode(place.read_bytes()).decode()
        text = Asked(image=image, drawing=place.suffix == ".png").model_dump_json()
        (folder / f"{place.stem}.json").write_text(text)
    return [folder / f"{name}.json" for name in "abc"]


def _picture(path: Path) -> object:
    """What a visitor's browser sends."""
    bundle: Any = SimpleNamespace(model=SimpleNamespace(image_shape=(1, 8, 8)))
    return _image(read_json(path, Asked, "what is asked", MIB), bundle)


LINES = {"ids.jsonl": IDS, "texts.jsonl": [{"text": "a cat"}, {"text": "the mat sat"}]}
CSV = 'idx,text,label\n0,a cat,1\n\n1,"the ""mat"" sat",0\n'


def _parquet(folder: Path) -> list[Path]:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(IDS), folder / "ids.parquet")
    return [folder / "ids.parquet"]


READERS = [
    Reader("npz", _npz, _read, 700),
    Reader(
        "jsonl",
        files({name: "\n".join(map(json.dumps, rows)) for name, rows in LINES.items()}),
        _read,
        2000,
    ),
    Reader("csv", files({"t.csv": CSV, "t.tsv": CSV.replace(",", "\t")}), _read, 1500),
    Reader("parquet", _parquet, _read, 500),
    Reader("txt", files({"texts.txt": "a cat sat\n\nthe mat\n1 2 3\n"}), _read, 3000),
    Reader("image", _image_files, _read, 1500),
    Reader("audio", _recordings, _recorded, 1500),
    Reader("preprocessor", _scaling, _scaled, 1000),
    Reader("visited-image", _pictures, _picture, 1500),
]
