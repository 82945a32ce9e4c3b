"""The image processor of a model: from an image to `pixel_values`, as transformers computes them.

`preprocessor_config.json` names a class of transformers. This module calls that class's own code
with pillow, because each class has its own steps and defaults, and a second version could differ.
The file is checked first: sizes and numbers have bounds, and a member that is unknown, or that the
class does not read, is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import MIB, Schema, parse_json, read_json
from atlasc.loading.model_files.huggingface import LOCAL, quiet_transformers

if TYPE_CHECKING:
    from PIL.Image import Image

    from atlasc.loading.loaded_model import LoadedModel

FILES = ("processor_config.json", "preprocessor_config.json")
"""Where transformers looks for the file, in order; the first with an `image_processor` counts."""
MAX_FILE = MIB
LARGEST_SCALED = 2**24
"""Greatest number of pixels of a resized image: a narrow image can grow beyond memory."""
PIXELS = "pixel_values"
SCALED = f"give scaled images: an .npz with an array {PIXELS}"
UNREAD = {
    "image_processor_type",
    "feature_extractor_type",
    "processor_class",
    "auto_map",
    "_valid_processor_keys",
    "reduce_labels",
    "do_reduce_labels",
}
"""Members that change no pixel: they name the class, or concern labels."""

_Extent = Annotated[int, Field(ge=1, le=4096)]
_SizeName = Literal["height", "width", "shortest_edge", "longest_edge", "max_height", "max_width"]
_Size = _Extent | dict[_SizeName, _Extent] | Annotated[list[_Extent], Field(max_length=2)]
_Deviation = Annotated[float, Field(gt=1e-6, lt=1e6)]
_Class = Annotated[str, Field(pattern=r"^\w{1,80}(ImageProcessor(Fast|Pil)?|FeatureExtractor)$")]


class Members(Schema):
    """The known members of preprocessor_config.json."""

    image_processor_type: _Class | None = None
    feature_extractor_type: _Class | None = None
    processor_class: str | None = None
    auto_map: Any = None
    valid_keys: Annotated[list[str] | None, Field(alias="_valid_processor_keys")] = None
    size: _Size | None = None
    crop_size: _Size | None = None
    pad_size: _Size | None = None
    size_divisor: _Extent | None = None
    default_to_square: bool | None = None
    do_convert_rgb: bool | None = None
    do_resize: bool | None = None
    do_center_crop: bool | None = None
    do_rescale: bool | None = None
    do_normalize: bool | None = None
    do_pad: bool | None = None
    do_flip_channel_order: bool | None = None
    resample: Annotated[int, Field(ge=0, le=5)] | None = None
    rescale_factor: Annotated[float, Field(gt=0, lt=1e6)] | None = None
    rescale_offset: bool | None = None
    image_mean: Annotated[list[float], Field(max_length=16)] | float | None = None
    image_std: Annotated[list[_Deviation], Field(max_length=16)] | _Deviation | None = None
    include_top: bool | None = None
    crop_pct: Annotated[float, Field(ge=0.1, le=10)] | None = None
    do_reduce_labels: bool | None = None
    reduce_labels: bool | None = None
    data_format: Literal["channels_first"] | None = None
    input_data_format: Literal["channels_first", "channels_last"] | None = None
    device: str | None = None
    return_tensors: str | None = None
    disable_grouping: bool | None = None


KNOWN = {field.alias or name for name, field in Members.model_fields.items()}


class ImageProcessor:
    """An image processor of transformers that computes with pillow.

    Attributes:
        path: path of the preprocessor file.
        processor: image processor of transformers.
    """

    def __init__(self, path: Path, processor: Any) -> None:
        self.path, self.processor = path, processor

    def __call__(self, image: Image) -> np.ndarray:
        """`pixel_values` of one image, float32 [channels, height, width].

        Raises:
            AtlasError: the steps do not fit the image, or return something else than pixels.
        """
        what = f"{self.path.name} does not fit the image"
        with explained(what, self.path, SCALED), quiet_transformers():
            self._require_small(image)
            found = self.processor(images=image, return_tensors="np")
        if set(found) != {PIXELS} or np.ndim(found[PIXELS]) != 4 or len(found[PIXELS]) != 1:
            raise AtlasError(
                f"{type(self.processor).__name__} returns more than the pixels of one image",
                where=str(self.path),
                why=f"it returns {', '.join(f'{k} {np.shape(v)}' for k, v in found.items())}",
                remedy=SCALED,
            )
        return np.ascontiguousarray(found[PIXELS][0], dtype=np.float32)

    def _require_small(self, image: Image) -> None:
        """Raise ValueError for an image that resizing would make larger than memory."""
        size = self.processor.size
        edge = getattr(size, "shortest_edge", None)
        if not (self.processor.do_resize and edge) or getattr(size, "longest_edge", None):
            return
        edge /= min(1.0, getattr(self.processor, "crop_pct", None) or 1.0)
        pixels = int(edge**2 * max(image.size) / min(image.size))
        if pixels > LARGEST_SCALED:
            raise ValueError(
                f"resized to {edge:.0f} pixels at its short side, an image of {image.width} x "
                f"{image.height} has {pixels} pixels; at most {LARGEST_SCALED} are computed"
            )


def load_image_processor(model: LoadedModel) -> ImageProcessor:
    """The image processor beside a model.

    Raises:
        AtlasError: the file is missing or malformed, has unknown members, or names no class that
            computes with pillow.
    """
    path, members = _read(model.directory)
    kind = getattr(model.config, "model_type", None)
    with quiet_transformers() as transformers:
        known = isinstance(kind, str) and kind in transformers.CONFIG_MAPPING
        named = members.get("image_processor_type") or members.get("feature_extractor_type")
        if not known and named is None:
            raise AtlasError(
                f"{path.name} does not name its image processor",
                where=str(path),
                why="each class of transformers has its own steps and defaults",
                remedy='add a member, for example "image_processor_type": "ViTImageProcessor"',
            )
        what = f"the image processor of {path.name} cannot be used"
        remedy = "use a class of transformers that computes with pillow; or " + SCALED
        with TemporaryDirectory() as folder, explained(what, path, remedy):
            (Path(folder) / FILES[1]).write_text(json.dumps(members), encoding="utf-8")
            processor = transformers.AutoImageProcessor.from_pretrained(
                folder,
                config=transformers.CONFIG_MAPPING[kind]() if known else None,
                backend="pil",
                **LOCAL,
            )
            found = type(processor).__name__.removesuffix("Pil")
            wanted = _without_variant(named) if named else found
            if getattr(processor, "backend", None) != "pil" or found != wanted:
                raise ValueError(f"transformers has no {wanted} that computes with pillow")
    given = {name for name, value in members.items() if value is not None}
    if ignored := given - processor.valid_kwargs.__annotations__.keys() - UNREAD:
        raise _unknown(path, ignored, f"{type(processor).__name__} does not read")
    return ImageProcessor(path, processor)


def _without_variant(name: str) -> str:
    """The name of the current class: ViTImageProcessor for ViTFeatureExtractor and other
    variants.
    """
    name = name.removesuffix("Fast").removesuffix("Pil")
    return name.replace("FeatureExtractor", "ImageProcessor")


def _read(directory: Path) -> tuple[Path, dict[str, Any]]:
    """The file that counts, and its members that are known."""
    for name in FILES:
        path = directory / name
        if not path.exists():
            continue
        raw = read_json(path, dict[str, Any], "image preprocessing", MAX_FILE)
        if name == FILES[0]:
            if "image_processor" not in raw:
                continue
            raw = raw["image_processor"]
        return path, _checked(path, raw)
    raise AtlasError(
        "the model does not say how images are scaled",
        where=str(directory),
        why="there is no preprocessor_config.json",
        remedy="add the file, or " + SCALED,
    )


def _checked(path: Path, raw: Any) -> dict[str, Any]:
    """The members, without unknown members that are null. Raises AtlasError
    for other unknown members, and for values out of bounds.
    """
    try:
        if not isinstance(raw, Mapping):
            raise ValueError("image_processor is no object")
        members = {n: value for n, value in raw.items() if n in KNOWN or value is not None}
        if unknown := members.keys() - KNOWN:
            raise _unknown(path, unknown, "atlasc does not know")
        parse_json(json.dumps(members), Members)
    except ValueError as error:
        raise AtlasError(
            f"image preprocessing {path} cannot be read", why=str(error), remedy=SCALED
        ) from None
    return members


def _unknown(path: Path, names: set[str], who: str) -> AtlasError:
    return AtlasError(
        f"{path.name} has members that {who}",
        where=str(path),
        why=", ".join(sorted(names)[:10]),
        remedy="delete them if they change no pixel; otherwise " + SCALED,
    )
