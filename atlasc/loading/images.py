"""Image files to `pixel_values`, scaled as in the model's own preprocessor_config.json."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import MIB, read_bytes, read_json
from atlasc.loading.inputs import Inputs

if TYPE_CHECKING:
    from PIL.Image import Image

    from atlasc.loading.models import LoadedModel

LARGEST_IMAGE = 2**25
"""Pixels: a file of some kilobytes can expand to more than the machine's memory."""
MAX_FILE = 256 * MIB
MAX_PREPROCESSING = MIB
MAX_PIXELS = 1 << 30
"""Numbers of all images together, scaled: 4 GiB."""
SUFFIXES = (".png", ".jpg", ".jpeg")
BILINEAR = 2  # pillow's number, and the default of HuggingFace's ViT preprocessing


_Extent = Annotated[int, Field(ge=1, le=4096)]
_Deviation = Annotated[float, Field(gt=1e-6, lt=1e6)]


class _Size(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    height: _Extent
    width: _Extent


class Preprocessing(BaseModel):
    """The members of preprocessor_config.json that are used; HuggingFace writes many others."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)

    size: _Extent | _Size
    do_resize: bool | None = None
    do_rescale: bool | None = None
    do_normalize: bool | None = None
    do_center_crop: bool | None = None
    resample: Annotated[int, Field(ge=0, le=5)] | None = None
    rescale_factor: Annotated[float, Field(gt=0, lt=1e6)] | None = None
    image_mean: Annotated[list[float], Field(max_length=16)] | None = None
    image_std: Annotated[list[_Deviation], Field(max_length=16)] | None = None

    @property
    def extent(self) -> tuple[int, int]:
        """(height, width): older files give one number for both."""
        if isinstance(self.size, int):
            return self.size, self.size
        return self.size.height, self.size.width


def load_images(source: Path, model: LoadedModel) -> Inputs:
    """Read an image, or all images of a folder and of its folders one level down.

    Names are relative to the source. There are labels if each image lies in a folder that is named
    like one of the model's labels. Raises AtlasError for no image, an unreadable one, or no
    preprocessor_config.json.
    """
    steps = _read_preprocessing(model)
    files, root = [source], source.parent
    if source.is_dir():
        found = (*source.glob("*"), *source.glob("*/*"))
        files = sorted(p for p in found if p.is_file() and p.suffix.lower() in SUFFIXES)
        root = source
    if not files:
        raise AtlasError(f"folder {source} has no images", remedy="put .png or .jpg files there")
    channels = model.image_shape[0] or 3
    read: list[np.ndarray] = []
    for path in files:
        read.append(_read(path, channels, steps))
        if read[-1].shape != read[0].shape:
            raise AtlasError(
                f"image {path.name} has another size than {files[0].name}",
                where=str(path),
                why=f"{read[-1].shape} and {read[0].shape}; the model's preprocessing resizes "
                "nothing",
            )
        if len(read) * read[0].size > MAX_PIXELS:
            raise AtlasError(
                f"{len(files)} images of shape {read[0].shape} are more than fit into memory",
                where=str(source),
                remedy="give fewer images",
            )
    known = getattr(model.config, "label2id", None)
    numbers = known if isinstance(known, dict) else {}
    labels = [numbers.get(path.parent.name) for path in files if path.parent != root]
    complete = len(labels) == len(files) and all(type(label) is int for label in labels)
    return Inputs(
        {"pixel_values": np.stack(read)},
        tuple(path.relative_to(root).as_posix() for path in files),
        np.array(labels, dtype=np.int64) if complete else None,
    )


def _read_preprocessing(model: LoadedModel) -> Preprocessing:
    """The model's preprocessor_config.json. Raises AtlasError where it is missing or malformed, or
    asks for a step that is not supported.
    """
    path = model.directory / "preprocessor_config.json"
    if not path.exists():
        raise AtlasError(
            "the model does not say how images are scaled",
            where=str(path.parent),
            why="there is no preprocessor_config.json",
            remedy="add the file, or give scaled images: an .npz with an array pixel_values",
        )
    steps = read_json(
        path,
        Preprocessing,
        "image preprocessing",
        MAX_PREPROCESSING,
        remedy='it needs at least "size": {"height": ..., "width": ...}',
    )
    if steps.do_center_crop:
        raise AtlasError(
            "preprocessor_config.json asks for a centre crop, which is not supported",
            where=str(path),
            remedy="give scaled images: an .npz with an array pixel_values",
        )
    return steps


def _read(path: Path, channels: int, steps: Preprocessing) -> np.ndarray:
    """One image as float32 [C, H, W]."""
    from PIL import Image as pillow

    # Not the file itself: a read of more bytes than it has would allocate memory for them.
    content = io.BytesIO(read_bytes(path, MAX_FILE))
    with warnings.catch_warnings():
        warnings.simplefilter("error", pillow.DecompressionBombWarning)
        with (
            explained(f"image {path.name} cannot be read", path),
            pillow.open(content, formats=("PNG", "JPEG")) as opened,
        ):
            if (pixels := opened.width * opened.height) > LARGEST_IMAGE:
                raise ValueError(f"it has {pixels} pixels; at most {LARGEST_IMAGE} are read")
            image: Image = opened.convert("L" if channels == 1 else "RGB")
    height, width = steps.extent
    if steps.do_resize is not False:
        image = image.resize(
            (width, height), BILINEAR if steps.resample is None else steps.resample
        )
    values = np.asarray(image, dtype=np.float32).reshape(image.height, image.width, -1)
    if steps.do_rescale is not False:
        values = values * np.float32(steps.rescale_factor or 1 / 255)
    if steps.do_normalize is not False:
        mean = np.asarray(steps.image_mean or [0.5], dtype=np.float32)
        deviation = np.asarray(steps.image_std or [0.5], dtype=np.float32)
        if {mean.size, deviation.size} - {1, values.shape[2]}:
            raise AtlasError(
                "preprocessor_config.json does not fit the image",
                where=str(path),
                why=f"means of {mean.size} and deviations of {deviation.size} channels, for "
                f"{values.shape[2]}",
            )
        values = (values - mean) / deviation
    return np.ascontiguousarray(values.transpose(2, 0, 1), dtype=np.float32)
