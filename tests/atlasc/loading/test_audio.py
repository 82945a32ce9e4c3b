"""Recordings equal those of transformers' feature extractors; what is lost or not read is said."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import atlasc
from atlasc.ir.errors import AtlasError
from atlasc.loading.data import inputs_of
from atlasc.loading.inputs import Inputs
from atlasc.loading.loaded_model import LoadedModel
from atlasc.loading.models import model_of

soundfile = pytest.importorskip("soundfile")

RATE = 16_000
AST = {"max_length": 16, "num_mel_bins": 8}
WHISPER = {"feature_size": 8, "chunk_length": 1, "hop_length": 1000}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("ASTFeatureExtractor", AST),
    ("ASTFeatureExtractor", {**AST, "mean": -3.0, "std": 2.0, "do_normalize": False}),
    ("Wav2Vec2FeatureExtractor", {}),
    ("Wav2Vec2FeatureExtractor", {"do_normalize": False}),
    ("WhisperFeatureExtractor", WHISPER),
]


def extractor(name: str, members: dict[str, Any]) -> Any:
    return getattr(transformers, name)(**members)


def model_with(
    folder: Path, name: str = "Wav2Vec2FeatureExtractor", shapes: Any = None, **members: Any
) -> LoadedModel:
    """A stand-in for a model with a preprocessor_config.json, as transformers writes it."""
    folder.mkdir(exist_ok=True)
    extractor(name, {}).save_pretrained(folder)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | members))
    main = "input_features" if name.startswith("Whisper") else "input_values"
    module: Any = SimpleNamespace(main_input_name=main)
    return LoadedModel(module, "any", SimpleNamespace(), folder, shapes=shapes or {})


def tone(count: int = 4000, seed: int = 0) -> np.ndarray:
    """Samples as a .wav of 16 bits keeps them."""
    noise = np.random.default_rng(seed).normal(size=count)
    return np.round(np.clip(noise / 4, -1, 1) * 32767) / 32768


def saved(path: Path, samples: np.ndarray | None = None, rate: int = RATE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, tone() if samples is None else samples, rate, subtype="PCM_16")
    return path


def only(inputs: Inputs) -> np.ndarray:
    (array,) = inputs.arrays.values()
    return array


def said(inputs: Inputs) -> str:
    return "\n".join(f"{headline}\n{details}" for headline, details in inputs.notes)


@pytest.mark.parametrize(("name", "members"), CASES)
@pytest.mark.parametrize("suffix", [".wav", ".flac"])
def test_arrays_equal_those_of_transformers(
    tmp_path: Path, name: str, members: dict[str, Any], suffix: str
) -> None:
    path = saved(tmp_path / f"x{suffix}")
    inputs = inputs_of(path, model_with(tmp_path / "m", name, **members))
    options = {"padding": "max_length"} if name.startswith("Whisper") else {}
    samples = tone().astype(np.float32)
    found = extractor(name, members)(samples, sampling_rate=RATE, return_tensors="np", **options)
    expected = found["input_features" if name.startswith("Whisper") else "input_values"]
    assert only(inputs).dtype == np.float32 and inputs.names == (path.name,)
    np.testing.assert_allclose(only(inputs), expected, atol=1e-5)


def test_waveforms_are_filled_and_cut_as_transformers_does(tmp_path: Path) -> None:
    folder = tmp_path / "sounds"
    lengths = {"a.wav": 3000, "b.wav": 5000, "c.flac": 4000}
    for name, length in lengths.items():
        saved(folder / name, tone(length))
    batch = [tone(length).astype(np.float32) for length in lengths.values()]
    theirs = transformers.Wav2Vec2FeatureExtractor()
    inputs = inputs_of(folder, model_with(tmp_path / "m"))
    expected = theirs(batch, sampling_rate=RATE, padding=True, return_tensors="np")["input_values"]
    np.testing.assert_allclose(only(inputs), expected, atol=1e-5)
    assert "2 recordings have less than 0.3125 s: filled with silence" in said(inputs)
    compiled = model_with(tmp_path / "m", shapes={"input_values": (None, 4000)})
    cut = inputs_of(folder, compiled)
    assert only(cut).shape == (3, 4000)
    np.testing.assert_allclose(
        only(cut)[1], theirs(batch[1][:4000], sampling_rate=RATE)["input_values"][0], atol=1e-5
    )
    assert "1 recording has more than 0.25 s: the rest is not read\n  which: b.wav" in said(cut)
    with pytest.raises(AtlasError, match=r"recording b.wav is longer than the program's 0.25 s"):
        inputs_of(folder, compiled, long="refuse")
    with pytest.raises(AtlasError, match="--long windows is for texts"):
        inputs_of(folder, compiled, long="windows")


@pytest.mark.parametrize(
    ("name", "members", "longest"),
    [("ASTFeatureExtractor", AST, 2959), ("WhisperFeatureExtractor", WHISPER, 16_000)],
)
def test_spectrograms_that_are_cut_are_said(
    tmp_path: Path, name: str, members: dict[str, Any], longest: int
) -> None:
    model = model_with(tmp_path / "m", name, **members)
    whole = inputs_of(saved(tmp_path / "x.wav", tone(longest)), model)
    assert whole.notes == ()
    more = inputs_of(saved(tmp_path / "y.wav", tone(longest + 1)), model)
    assert f"more than {longest / RATE:g} s: the rest is not read\n  which: y.wav" in said(more)


def test_a_frame_more_is_a_frame_that_ast_does_not_read(tmp_path: Path) -> None:
    theirs = extractor("ASTFeatureExtractor", {**AST, "max_length": 17})
    for count, frames in ((2959, 16), (2960, 17)):
        found = theirs(tone(count).astype(np.float32), sampling_rate=RATE)["input_values"][0]
        padding = theirs.normalize(np.zeros(8, np.float32))
        assert sum(not np.allclose(row, padding) for row in found) == frames


def test_channels_and_rates(tmp_path: Path) -> None:
    from scipy.signal import resample_poly

    folder, model = tmp_path / "sounds", model_with(tmp_path / "m", do_normalize=False)
    both = np.stack([tone(4000), tone(4000, seed=1)], axis=1)
    saved(folder / "two.wav", both)
    saved(folder / "fast.wav", tone(8000), 2 * RATE)
    inputs = inputs_of(folder, model)
    np.testing.assert_allclose(only(inputs)[0], resample_poly(tone(8000), 1, 2), atol=1e-6)
    np.testing.assert_allclose(only(inputs)[1], both.mean(axis=1), atol=1e-6)
    assert "1 recording has 32000 samples a second: resampled to 16000" in said(inputs)
    assert "1 recording has more than one channel: their mean is read" in said(inputs)


def test_a_slow_tone_survives_another_rate(tmp_path: Path) -> None:
    model = model_with(tmp_path / "m", do_normalize=False)
    given, wanted = (
        np.sin(2 * np.pi * 440 * np.arange(rate // 4) / rate) / 2 for rate in (44_100, RATE)
    )
    found = only(inputs_of(saved(tmp_path / "x.wav", given, 44_100), model))[0]
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found[200:-200], wanted[200:-200], atol=2e-3)


def test_folders_name_the_labels(tmp_path: Path) -> None:
    folder = tmp_path / "sounds"
    for seed, name in enumerate(("dog/1.wav", "cat/2.flac")):
        saved(folder / name, tone(seed=seed))
    (folder / "notes.md").write_text("hello")
    inputs = inputs_of(folder, model_with(tmp_path / "m"))
    assert inputs.labels is not None and inputs.labels.tolist() == ["cat", "dog"]
    assert inputs.names == ("cat/2.flac", "dog/1.wav")
    assert "1 file is left out\n  why: not a recording of a known kind: notes.md" in said(inputs)
    some = inputs_of(folder, model_with(tmp_path / "m"), choice=lambda count: [1])
    assert some.names == ("dog/1.wav",)


@pytest.mark.parametrize("key", ["audio", "file", "path", "file_name"])
def test_tables_name_files_beside_them(tmp_path: Path, key: str) -> None:
    for seed in range(3):
        saved(tmp_path / "wavs" / f"{seed}.wav", tone(seed=seed))
    model = model_with(tmp_path / "m")
    expected = only(inputs_of(tmp_path / "wavs", model))
    paths = ["wavs/0.wav", str(tmp_path / "wavs" / "1.wav"), "wavs/2.wav"]
    rows = [{key: path, "label": at} for at, path in enumerate(paths)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "t.csv").write_text(
        f"id,{key},label\n" + "".join(f"9,{path},{at}\n" for at, path in enumerate(paths))
    )
    for name, first in (("t.jsonl", "t.jsonl:1"), ("t.csv", "t.csv:2")):
        inputs = inputs_of(tmp_path / name, model)
        np.testing.assert_array_equal(only(inputs), expected)
        assert inputs.labels is not None and inputs.labels.tolist() == [0, 1, 2]
        assert inputs.names[0] == first
    assert "id of the data is not read" in said(inputs)
    last = inputs_of(tmp_path / "t.csv", model, choice=lambda count: [2])
    np.testing.assert_array_equal(only(last), expected[2:])


def test_tables_with_other_members_are_refused(tmp_path: Path) -> None:
    model = model_with(tmp_path / "m")
    for row in ({"audio": "a.wav", "speaker": 3}, {"text": "a.wav"}):
        (tmp_path / "t.jsonl").write_text(json.dumps(row))
        with pytest.raises(AtlasError, match="each row needs one of audio, file, path") as caught:
            inputs_of(tmp_path / "t.jsonl", model)
        assert "t.jsonl:1" in caught.value.where


def test_recordings_in_memory(tmp_path: Path) -> None:
    paths = [saved(tmp_path / f"{seed}.wav", tone(seed=seed)) for seed in range(2)]
    model = model_with(tmp_path / "m")
    arrays = [{"array": tone(seed=seed), "sampling_rate": RATE} for seed in range(2)]
    stored = [{"bytes": path.read_bytes(), "path": None} for path in paths]
    expected = np.concatenate([only(inputs_of(path, model)) for path in paths])
    for data in (
        paths, list(map(str, paths)), arrays, stored, [{"audio": one} for one in arrays],
        [(path, 3 + at) for at, path in enumerate(paths)],
        [{"audio": one, "label": 3 + at} for at, one in enumerate(stored)],
    ):  # fmt: skip
        inputs = inputs_of(data, model)
        np.testing.assert_array_equal(only(inputs), expected)
        assert inputs.labels is None or inputs.labels.tolist() == [3, 4]
    np.testing.assert_array_equal(only(inputs_of(arrays[0], model)), expected[:1])
    np.testing.assert_array_equal(only(inputs_of({"input_values": expected}, model)), expected)


def test_a_recording_that_cannot_be_read_keeps_its_row(tmp_path: Path) -> None:
    folder = tmp_path / "sounds"
    saved(folder / "a.wav")
    (folder / "b.wav").write_bytes(b"RIFF" + bytes(60))
    (folder / "c.flac").write_text("words")
    soundfile.write(folder / "d.wav", np.zeros(0), RATE)
    soundfile.write(folder / "e.wav", np.full(4000, np.nan), RATE, subtype="FLOAT")
    soundfile.write(tmp_path / "f.aiff", tone(), RATE)
    (tmp_path / "f.aiff").rename(folder / "f.wav")
    inputs = inputs_of(folder, model_with(tmp_path / "m"))
    assert [bool(fault) for fault in inputs.faults] == [False] + [True] * 5
    assert "the file is no recording of the kinds .wav, .flac" in inputs.faults[2]
    assert "not finite" in inputs.faults[4] and "no recording of the kinds" in inputs.faults[5]
    assert np.isfinite(only(inputs)).all(axis=1).tolist() == [True] + [False] * 5
    with pytest.raises(AtlasError, match="recording c.flac cannot be read"):
        inputs_of(folder / "c.flac", model_with(tmp_path / "m"))


def test_a_file_that_expands_beyond_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "silence.flac", np.zeros(100_000))
    monkeypatch.setattr("atlasc.loading.audio.reading.MAX_SAMPLES", 99_999)
    with pytest.raises(AtlasError, match="it has 100000 samples; at most 99999 are read"):
        inputs_of(path, model_with(tmp_path / "m"))


def test_without_soundfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "x.wav")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(AtlasError, match="needs soundfile, which is not installed") as caught:
        inputs_of(path, model_with(tmp_path / "m"))
    assert "pip install soundfile" in caught.value.remedy


def nothing(folder: Path) -> None:
    (folder / "preprocessor_config.json").unlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"feature_extractor_type": "ClapFeatureExtractor"}, "atlasc knows ASTFeatureExtractor"),
        ({"feature_extractor_type": "Trainer"}, "cannot be used(.|\n)*'Trainer'"),
        ({"sharpen": 2}, "does not know the members sharpen"),
        ({"sampling_rate": 10**9}, "cannot be used(.|\n)*sampling_rate"),
        ({"sampling_rate": "fast"}, "cannot be used(.|\n)*sampling_rate"),
        ({"feature_extractor_type": "WhisperFeatureExtractor", "dither": 0.1}, "dither"),
        ({"feature_extractor_type": "WhisperFeatureExtractor"}, "makes input_features, but the"),
        (nothing, "does not say how recordings are turned into its inputs"),
    ],
)
def test_what_the_feature_extractor_cannot_do_is_refused(
    tmp_path: Path, change: dict[str, Any] | Callable[[Path], None], message: str
) -> None:
    model = model_with(tmp_path / "m", **(change if isinstance(change, dict) else {}))
    if not isinstance(change, dict):
        change(tmp_path / "m")
    with pytest.raises(AtlasError, match=message):
        inputs_of(saved(tmp_path / "x.wav"), model)


def test_a_mask_of_the_padding_is_refused(tmp_path: Path) -> None:
    model = model_with(tmp_path / "m", return_attention_mask=True)
    saved(tmp_path / "sounds" / "a.wav", tone(4000))
    saved(tmp_path / "sounds" / "b.wav", tone(3000))
    inputs = inputs_of(tmp_path / "sounds", model)
    assert not inputs.faults[0] and "a mask of the padding" in inputs.faults[1]


def test_recordings_are_for_models_that_read_them(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.wav")
    module: Any = SimpleNamespace(main_input_name="pixel_values")
    with pytest.raises(AtlasError, match="holds recordings, but the model reads pixel_values"):
        inputs_of(path, LoadedModel(module, "any", SimpleNamespace(), tmp_path))


def test_a_program_reads_recordings(tmp_path: Path) -> None:
    """Compiled from a folder of files; its client has the feature extractor and the length."""
    torch.manual_seed(0)
    config = transformers.ASTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        patch_size=4, time_stride=4, frequency_stride=4, num_labels=3, **AST,
    )  # fmt: skip
    module = transformers.ASTForAudioClassification(config).eval()
    theirs = transformers.ASTFeatureExtractor(**AST)
    sounds = [saved(tmp_path / "sounds" / f"{n}.wav", tone(2500 + n, seed=n)) for n in range(6)]
    program = atlasc.compile(
        module, data=tmp_path / "sounds", processor=theirs, recipe="is", target="sim"
    )
    found = program.run(sounds[0])
    with torch.no_grad():
        given = theirs(tone(2500).astype(np.float32), sampling_rate=RATE, return_tensors="pt")
        expected = module(**given).logits
    np.testing.assert_allclose(found.outputs["logits"], expected, atol=1e-2)
    assert model_of(module, processor=theirs).input_names == ("input_values",)
