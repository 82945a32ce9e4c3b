"""The feature extractor of a model: from a recording to the array that the model reads.

`preprocessor_config.json` names a class of transformers. This module calls that class's own code.
The file is checked first: numbers have bounds, and an unknown class or member is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import MIB, Schema, read_json
from atlasc.loading.images.processor import FILES
from atlasc.loading.model_files.huggingface import quiet_transformers

if TYPE_CHECKING:
    from atlasc.loading.loaded_model import LoadedModel

MAX_FILE = 4 * MIB  # old files of Whisper hold a matrix
ARRAYS = "give the array that the model's feature extractor makes, in an .npz"


class Kind(NamedTuple):
    """What is known of a class of feature extractors.

    Attributes:
        name: the input of the model that it makes.
        longest: from an extractor to the greatest number of samples that it reads; None for a
            waveform, which may have any length.
    """

    name: str
    longest: Callable[[Any], int] | None


KINDS = {
    # A frame of 400 samples begins every 160 samples.
    "ASTFeatureExtractor": Kind("input_values", lambda one: 400 + 160 * one.max_length - 1),
    "Wav2Vec2FeatureExtractor": Kind("input_values", None),
    "WhisperFeatureExtractor": Kind("input_features", lambda one: one.n_samples),
}
DERIVED = ("n_samples", "nb_max_frames", "mel_filters")
"""Members that follow from others; transformers computes them again."""
UNREAD = ("feature_extractor_type", "processor_class", "auto_map", *DERIVED)


class Members(Schema):
    """The known members of preprocessor_config.json."""

    feature_extractor_type: str
    processor_class: str | None = None
    auto_map: Any = None
    n_samples: Any = None
    nb_max_frames: Any = None
    mel_filters: Any = None
    feature_size: Annotated[int, Field(ge=1, le=512)] | None = None
    sampling_rate: Annotated[int, Field(ge=100, le=384_000)] | None = None
    padding_value: Annotated[float, Field(ge=-1, le=1)] | None = None
    padding_side: Literal["right", "left"] | None = None
    return_attention_mask: bool | None = None
    do_normalize: bool | None = None
    num_mel_bins: Annotated[int, Field(ge=1, le=512)] | None = None
    max_length: Annotated[int, Field(ge=1, le=1 << 15)] | None = None
    mean: float | None = None
    std: Annotated[float, Field(gt=1e-6, lt=1e6)] | None = None
    hop_length: Annotated[int, Field(ge=16, le=1 << 13)] | None = None
    chunk_length: Annotated[int, Field(ge=1, le=600)] | None = None
    n_fft: Annotated[int, Field(ge=16, le=1 << 13)] | None = None
    dither: Annotated[float, Field(ge=0, le=0, description="noise is not repeatable")] | None = None


class Extractor:
    """A feature extractor of transformers.

    Attributes:
        path: path of its file.
        name: the input of the model that it makes.
        rate: samples a second that it reads.
        longest: the greatest number of samples that it reads; None for a waveform.
        masked: whether the model reads a mask of the padding of a waveform.
    """

    def __init__(self, path: Path, extractor: Any) -> None:
        kind = KINDS[type(extractor).__name__]
        self.path, self.extractor, self.name = path, extractor, kind.name
        self.rate = int(extractor.sampling_rate)
        self.longest = None if kind.longest is None else kind.longest(extractor)
        self.masked = kind.longest is None and bool(extractor.return_attention_mask)

    def __call__(self, samples: np.ndarray, length: int) -> np.ndarray:
        """The input of the model for one recording, without the batch, float32.

        Args:
            samples: [samples] at ``rate``.
            length: samples of a waveform: a longer one is cut, a shorter one padded, as
                transformers does.

        Raises:
            AtlasError: the steps do not fit the recording.
        """
        options = {"padding": "max_length", "max_length": length, "truncation": True}
        what = f"{self.path.name} does not fit the recording"
        with explained(what, self.path, ARRAYS), quiet_transformers():
            found = self.extractor(
                samples,
                sampling_rate=self.rate,
                return_tensors="np",
                **(options if self.longest is None else {}),
            )
            return np.ascontiguousarray(found[self.name][0], dtype=np.float32)


def load_extractor(model: LoadedModel) -> Extractor:
    """The feature extractor beside a model.

    Raises:
        AtlasError: the file is missing or malformed, has unknown members, or names a class that is
            not known; or the class makes another input than the model reads.
    """
    path, raw = _read(model.directory)
    try:
        members = {name: value for name, value in raw.items() if value is not None}
        if str(members.get("feature_extractor_type")) not in KINDS:
            raise ValueError(
                f"feature_extractor_type is {members.get('feature_extractor_type')!r}; atlasc "
                f"knows {', '.join(KINDS)}"
            )
        if unknown := members.keys() - Members.model_fields.keys():
            raise ValueError(f"atlasc does not know the members {', '.join(sorted(unknown)[:10])}")
        Members.model_validate(members)
    except ValueError as error:
        raise AtlasError(
            f"the feature extractor of {path.name} cannot be used",
            where=str(path),
            why=str(error),
            remedy=ARRAYS,
        ) from None
    with explained(f"the feature extractor of {path.name} cannot be used", path, ARRAYS):
        import transformers

        made = getattr(transformers, members["feature_extractor_type"])
        found = Extractor(path, made(**{n: v for n, v in members.items() if n not in UNREAD}))
    if found.name != model.input_names[0]:
        raise AtlasError(
            f"{path.name} makes {found.name}, but the model reads {model.input_names[0]}",
            where=str(path),
            remedy="use the file that was saved with this model",
        )
    return found


def _read(directory: Path) -> tuple[Path, dict[str, Any]]:
    """The file that counts, and its members."""
    for name in FILES:
        path = directory / name
        if not path.exists():
            continue
        raw = read_json(path, dict[str, Any], "audio preprocessing", MAX_FILE)
        if name == FILES[0]:
            if not isinstance(raw.get("feature_extractor"), Mapping):
                continue
            raw = raw["feature_extractor"]
        return path, raw
    raise AtlasError(
        "the model does not say how recordings are turned into its inputs",
        where=str(directory),
        why=f"there is no {FILES[1]}",
        remedy="copy the file of the original model; or " + ARRAYS,
    )
