"""Image files to `pixel_values`, as the model's own preprocessor_config.json says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.ir.errors import AtlasError

if TYPE_CHECKING:
    from PIL.Image import Image

    from atlasc.loading.models import LoadedModel

SUFFIXES = (".png", ".jpg", ".jpeg")
BILINEAR = 2  # pillow's number, and the default of HuggingFace's ViT preprocessing


def load_images(
    source: Path, model: LoadedModel
) -> tuple[np.ndarray, tuple[str, ...], np.ndarray | None]:
    """Read an image, or all images of a folder and of its folders one level down.

    Returns:
        float32 pixel values [N, C, H, W]; names relative to the source; labels [N] if each image
        lies in a folder that is named like one of the model's labels.

    Raises:
        AtlasError: no image, an unreadable one, or no preprocessor_config.json.
    """
    steps = read_preprocessing(model)
    if source.is_dir():
        found = [p for p in (*source.glob("*"), *source.glob("*/*")) if p.is_file()]
        files = sorted(path for path in found if path.suffix.lower() in SUFFIXES)
        root = source
    else:
        files, root = [source], source.parent
    if not files:
        raise AtlasError(f"folder {source} has no images", remedy="put .png or .jpg files there")
    channels = getattr(model.config, "num_channels", 3)
    pixels = np.stack([_read(path, channels, steps) for path in files])
    numbers = {str(k): int(v) for k, v in (getattr(model.config, "label2id", None) or {}).items()}
    labels = [numbers.get(path.parent.name) for path in files if path.parent != root]
    complete = len(labels) == len(files) and None not in labels
    names = tuple(path.relative_to(root).as_posix() for path in files)
    return pixels, names, np.array(labels, dtype=np.int64) if complete else None


def read_preprocessing(model: LoadedModel) -> dict[str, Any]:
    """The model's preprocessor_config.json.

    Raises:
        AtlasError: it is missing or malformed, or asks for a step that is not supported.
    """
    path = model.directory / "preprocessor_config.json"
    try:
        steps = json.loads(path.read_text(encoding="utf-8"))
        steps["size"] = _size(steps)
    except FileNotFoundError as error:
        raise AtlasError(
            "the model does not say how images are scaled",
            where=str(path.parent),
            why="there is no preprocessor_config.json",
            remedy="add the file, or give scaled images: an .npz with an array pixel_values",
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise AtlasError(
            "preprocessor_config.json is malformed",
            where=str(path),
            why=f"{type(error).__name__}: {error}",
            remedy='it needs at least "size": {"height": ..., "width": ...}',
        ) from error
    if steps.get("do_center_crop"):
        raise AtlasError(
            "preprocessor_config.json asks for a centre crop, which is not supported",
            where=str(path),
            remedy="give scaled images: an .npz with an array pixel_values",
        )
    return steps


def _size(steps: dict[str, Any]) -> tuple[int, int]:
    """(height, width): older files give one number for both."""
    size = steps["size"]
    if isinstance(size, int):
        return size, size
    return int(size["height"]), int(size["width"])


def _read(path: Path, channels: int, steps: dict[str, Any]) -> np.ndarray:
    """One image as float32 [C, H, W]."""
    from PIL import Image as pillow

    try:
        with pillow.open(path) as opened:
            image: Image = opened.convert("L" if channels == 1 else "RGB")
    except Exception as error:
        raise AtlasError(
            f"image {path.name} cannot be read", where=str(path), why=str(error)
        ) from error
    height, width = steps["size"]
    if steps.get("do_resize", True):
        image = image.resize((width, height), resample=steps.get("resample", BILINEAR))
    pixels = np.asarray(image, dtype=np.float32).reshape(image.height, image.width, channels)
    if steps.get("do_rescale", True):
        pixels = pixels * np.float32(steps.get("rescale_factor", 1 / 255))
    if steps.get("do_normalize", True):
        mean = np.asarray(steps.get("image_mean", [0.5] * channels), dtype=np.float32)
        deviation = np.asarray(steps.get("image_std", [0.5] * channels), dtype=np.float32)
        pixels = (pixels - mean) / deviation
    return np.ascontiguousarray(pixels.transpose(2, 0, 1), dtype=np.float32)
