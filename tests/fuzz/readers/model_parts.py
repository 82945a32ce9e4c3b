"""Files beside a model: modules of sentence-transformers, an adapter, feature extractors, shapes of
spectrograms, tokenizers, data sets, and what atlasc keeps of fits and ranges.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from atlasc.calibration.calibrate import outliers_of, read_calibration
from atlasc.compilation.fronts import keep_ranges, kept_ranges
from atlasc.compilation.single_stages import _arrays, read_ir
from atlasc.ir.files import MIB, read_json
from atlasc.loading.audio.extractor import load_extractor
from atlasc.loading.model_files.adapters import CONFIG, _base
from atlasc.loading.model_files.huggingface import load_tokenizer
from atlasc.loading.model_files.members import left_out
from atlasc.loading.model_files.sentence import sentences_of
from atlasc.loading.shapes import spectrogram_shape
from atlasc.loading.texts.tables import read_dataset
from atlasc.polynomials.fits import chebyshev
from tests.fuzz.reader import Reader
from tests.fuzz.seeds import Seeds, compiled

LIBRARY = "sentence_transformers.models"
EXTRACTOR = {
    "feature_extractor_type": "Wav2Vec2FeatureExtractor", "feature_size": 1, "do_normalize": True,
    "padding_value": 0.0, "return_attention_mask": True, "sampling_rate": 16_000,
    "padding_side": "right",
}  # fmt: skip
SPECTROGRAM = {"max_length": 1024, "num_mel_bins": 128}
OUTLIERS = {"outliers": []}
FIT = ("exp", 7, (-4.0, 0.0))
OF = "0123456789abcdef" * 4


def _folder(name: str, contents: dict[str, Any]) -> Seeds:
    """A folder of files; what is no text becomes JSON."""

    def seeds(folder: Path) -> list[Path]:
        for path, content in contents.items():
            place = folder / name / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content if isinstance(content, str) else json.dumps(content))
        return [folder / name]

    return seeds


SENTENCES = {
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": f"{LIBRARY}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{LIBRARY}.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": f"{LIBRARY}.Normalize"},
    ],
    "1_Pooling/config.json": {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True},
    "sentence_bert_config.json": {"max_seq_length": 16, "do_lower_case": True},
}


def _sentences(folder: Path) -> Any:
    steps = folder / "1_Pooling", folder / "2_Normalize"
    return sentences_of(folder), left_out(folder, folder, steps, SimpleNamespace(), False)


def _extracted(folder: Path) -> Any:
    model: Any = SimpleNamespace(directory=folder, input_names=["input_values"])
    return load_extractor(model).rate


def _shape(folder: Path) -> Any:
    model: Any = SimpleNamespace(directory=folder, config=SimpleNamespace())
    return spectrogram_shape(model, "input_values")


def _tokenizers(folder: Path) -> list[Path]:
    from tests.atlasc.generation.conftest import tokenizer

    tokenizer().save_pretrained(folder / "tokenizer")
    return [folder / "tokenizer"]


def _tokenizer(folder: Path) -> Any:
    found = load_tokenizer(folder)
    return found and type(found).__name__


def _datasets(folder: Path) -> list[Path]:
    import pyarrow
    from pyarrow import ipc

    (folder / "set").mkdir()
    table = pyarrow.Table.from_pylist([{"text": "a cat", "label": 1}])
    with ipc.new_stream(folder / "set" / "data.arrow", table.schema) as writer:
        writer.write_table(table)
    (folder / "set" / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    return [folder / "set"]


def _fits(folder: Path) -> list[Path]:
    os.environ["ATLASC_CACHE"] = str(folder / "cache")
    chebyshev.store(*FIT, np.linspace(1, 0, 8))
    return [folder / "cache"]


def _fit(folder: Path) -> Any:
    os.environ["ATLASC_CACHE"] = str(folder)
    found = chebyshev.load(*FIT)
    return None if found is None else found.tolist()


def _ranges(folder: Path) -> list[Path]:
    (folder / "kept").mkdir()
    known = read_calibration(compiled() / "front" / "calibration.json")
    keep_ranges(folder / "kept" / "journal", OF, known)
    return [folder / "kept"]


def _range(folder: Path) -> Any:
    found = kept_ranges(folder / "journal", OF)
    return found and found.table()


def _stages(folder: Path) -> list[Path]:
    (folder / "stage").mkdir()
    shutil.copy(compiled() / "nn.air", folder / "stage")
    pixels = np.zeros((2, 1, 8, 8), np.float32)
    np.savez(folder / "stage" / "data.npz", pixel_values=pixels)
    return [folder / "stage"]


def _stage(folder: Path) -> Any:
    module, arrays = read_ir(str(folder / "nn.air"), None)  # type: ignore[arg-type]
    return module.level, arrays, sorted(_arrays(module, folder / "data.npz"))


def _outliers(path: Path) -> Any:
    return outliers_of(read_json(path, dict[str, Any], "facts", MIB))


def _reader(
    name: str, contents: dict[str, Any], read: Callable[[Path], Any], weight: int
) -> Reader:
    return Reader(name, _folder(name, contents), read, weight)


READERS = [
    _reader("sentences", SENTENCES, _sentences, 700),
    _reader("adapter", {CONFIG: {"base_model_name_or_path": "a/b"}}, _base, 3000),
    _reader("extractor", {"preprocessor_config.json": EXTRACTOR}, _extracted, 500),
    _reader("spectrogram", {"preprocessor_config.json": SPECTROGRAM}, _shape, 3000),
    Reader("tokenizer", _tokenizers, _tokenizer, 20),
    Reader("data-set", _datasets, read_dataset, 500),
    Reader("fit", _fits, _fit, 2000),
    Reader("kept-ranges", _ranges, _range, 500),
    Reader("stage", _stages, _stage, 100),
    Reader("outliers", lambda folder: [_written(folder)], _outliers, 3000),
]


def _written(folder: Path) -> Path:
    (folder / "facts.json").write_text(json.dumps(OUTLIERS))
    return folder / "facts.json"
