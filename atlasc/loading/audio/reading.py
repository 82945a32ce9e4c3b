"""One recording, from a file or from memory, as samples at the rate of a model."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.ir.errors import AtlasError, explained, first_line
from atlasc.ir.files import MIB, read_bytes

SUFFIXES = (".wav", ".flac")
BEGINNINGS = (b"RIFF", b"RF64", b"fLaC")
"""First bytes of these files. The library would try some thirty further formats."""
MAX_FILE = 512 * MIB
MAX_SAMPLES = 1 << 26
"""Greatest number of samples of all channels: a small file can expand beyond the machine's
memory."""
MAX_RATE = 384_000
REMEDY = "save the recording again as a .wav, or leave it out"
MIXED = "more than one channel: their mean is read"


def is_recording(value: Any) -> bool:
    """Whether a value in memory is a recording: the path of a file, or a mapping as `datasets`
    holds it (`array` and `sampling_rate`, or the `bytes` of a file).
    """
    if isinstance(value, str | Path):
        return Path(value).suffix.lower() in SUFFIXES
    if not isinstance(value, Mapping):
        return False
    return {"array", "sampling_rate"} <= value.keys() or value.keys() == {"bytes", "path"}


def read_recording(source: Any, name: str, rate: int, say: Callable[[str], object]) -> np.ndarray:
    """The samples of a recording, float32 [samples] at ``rate``, full scale at 1.

    Args:
        source: see `is_recording`.
        name: name of the recording for messages.
        rate: samples a second of the model.
        say: called with a note if channels are mixed, or the rate is changed.

    Raises:
        AtlasError: the recording cannot be read, is empty or too long; or the library is missing.
    """
    where = str(source) if isinstance(source, str | Path) else ""
    with explained(f"recording {name} cannot be read", where, REMEDY):
        samples, given = _samples(source)
        if samples.ndim == 2:
            if samples.shape[1] > 1:
                say(MIXED)
            samples = samples.mean(axis=1)
        if samples.ndim != 1 or not len(samples) or not np.isfinite(samples).all():
            raise ValueError("it has no samples, or samples that are not finite")
        if not 1 <= given <= MAX_RATE:
            raise ValueError(f"it has {given} samples a second; at most {MAX_RATE} are read")
        if given != rate:
            say(f"{given} samples a second: resampled to {rate}, which the model reads")
            samples = _resampled(samples, given, rate)
        return samples.astype(np.float32)


def _samples(source: Any) -> tuple[np.ndarray, int]:
    """Samples [n] or [n, channels], and how many a second."""
    if isinstance(source, Mapping) and source.keys() == {"bytes", "path"}:
        source = source["bytes"] or source["path"]
    if isinstance(source, Mapping) and is_recording(source):
        return np.asarray(source["array"], np.float32), int(source["sampling_rate"])
    if isinstance(source, str | Path):
        source = read_bytes(Path(source).expanduser(), MAX_FILE)
    if isinstance(source, Exception):  # from a data set that decodes recordings itself
        raise source
    if not isinstance(source, bytes):
        raise ValueError(f"a {type(source).__name__} is no recording")
    if not source.startswith(BEGINNINGS):
        raise ValueError(f"the file is no recording of the kinds {', '.join(SUFFIXES)}")
    with _library().SoundFile(io.BytesIO(source)) as file:
        if (size := file.frames * file.channels) > MAX_SAMPLES:
            raise ValueError(f"it has {size} samples; at most {MAX_SAMPLES} are read")
        return file.read(dtype="float32", always_2d=True), file.samplerate


def _library() -> Any:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: without the C library libsndfile
        raise AtlasError(
            "recordings cannot be read",
            why=f"reading them needs soundfile, which is not installed: {first_line(error)}",
            remedy="pip install soundfile, or give the array that the model's feature extractor "
            "makes, in an .npz",
        ) from error
    return soundfile


def _resampled(samples: np.ndarray, given: int, wanted: int) -> np.ndarray:
    from scipy.signal import resample_poly

    common = math.gcd(given, wanted)
    return np.asarray(resample_poly(samples.astype(np.float64), wanted // common, given // common))
