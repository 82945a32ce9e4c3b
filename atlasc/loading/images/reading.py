"""One image, from a file or from memory, as HuggingFace's `load_image` reads it.

The image is rotated by its EXIF orientation, then converted to RGB, or to gray for a model with one
channel.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.ir.errors import explained
from atlasc.ir.files import MIB, read_bytes

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST_IMAGE = 2**25
"""Greatest number of pixels: a file of some kilobytes can expand beyond the machine's memory."""
MAX_FILE = 256 * MIB
FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "GIF")
SUFFIXES = (".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".webp", ".tif", ".tiff", ".gif")
CHANNELS = (1, 3, 4)
REMEDY = "save the image again as a .png, or leave it out"
FRAMES, DEEP, TRANSPARENT = (
    "more than one frame: only the first one is read",
    "more than 8 bits a channel: values above 255 become 255, as in HuggingFace's load_image",
    "transparent pixels: transparency is ignored, as in HuggingFace's load_image",
)
"""Notes on images of which something is lost."""


def is_image(value: Any) -> bool:
    """Whether a value in memory is an image.

    Images are: objects of pillow; arrays or tensors of bytes [H, W], [H, W, C] or [C, H, W]; paths
    of image files; files as `datasets` holds them.
    """
    from PIL.Image import Image as PillowImage

    if isinstance(value, str | Path):
        return Path(value).suffix.lower() in SUFFIXES
    if isinstance(value, Mapping):
        return value.keys() == {"bytes", "path"}
    if isinstance(value, PillowImage):
        return True
    return getattr(value, "ndim", 0) in (2, 3) and str(value.dtype).endswith("uint8")


def read_image(source: Any, name: str, mode: str, say: Callable[[str], object]) -> Image:
    """Read an image in one of pillow's modes.

    Args:
        source: see `is_image`.
        name: name of the image for messages.
        mode: mode of pillow, such as "RGB".
        say: called with a note if something of the image is lost.

    Raises:
        AtlasError: the image cannot be read, or has too many pixels.
    """
    from PIL import Image as pillow
    from PIL import ImageOps

    where = str(source) if isinstance(source, str | Path) else ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", pillow.DecompressionBombWarning)
        with explained(f"image {name} cannot be read", where, REMEDY), _opened(source) as opened:
            if (pixels := opened.width * opened.height) > LARGEST_IMAGE:
                raise ValueError(f"it has {pixels} pixels; at most {LARGEST_IMAGE} are read")
            if getattr(opened, "is_animated", False):
                say(FRAMES)
            image = ImageOps.exif_transpose(opened)
            if image.mode.startswith(("I", "F")):
                say(DEEP)
            if _is_transparent(image):
                say(TRANSPARENT)
            return image.convert(mode)


def _opened(source: Any) -> Image:
    """An image that is not decoded yet, from any source; raises ValueError for other objects."""
    from PIL import Image as pillow
    from PIL import UnidentifiedImageError

    if isinstance(source, Mapping) and source.keys() == {"bytes", "path"}:
        source = source["bytes"] or source["path"]
    if isinstance(source, pillow.Image):
        return source.copy()  # the caller's own image stays open
    if isinstance(source, str | Path):
        # Not the file itself: reading beyond its end would allocate memory for the missing bytes.
        source = read_bytes(Path(source).expanduser(), MAX_FILE)
    if isinstance(source, bytes):
        try:
            return pillow.open(io.BytesIO(source), formats=FORMATS)
        except UnidentifiedImageError:
            raise ValueError(f"the file is no image of the kinds {', '.join(FORMATS)}") from None
    if isinstance(source, Exception):  # from a data set that decodes images itself
        raise source
    if not is_image(source):
        raise ValueError(f"a {type(source).__name__} is no image, and no array of bytes (uint8)")
    array = np.asarray(source)
    first, last = (array.ndim == 3 and array.shape[at] in CHANNELS for at in (0, -1))
    if array.ndim == 3 and first == last:
        has = "two axes that could be" if first else "no axis of"
        raise ValueError(f"an array of shape {array.shape} has {has} 1, 3 or 4 channels")
    if first:
        array = np.moveaxis(array, 0, -1)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    return pillow.fromarray(np.ascontiguousarray(array))


def _is_transparent(image: Image) -> bool:
    if "A" not in image.getbands() and image.info.get("transparency") is None:
        return False
    return bool((np.asarray(image.convert("RGBA"))[:, :, 3] < 255).any())
