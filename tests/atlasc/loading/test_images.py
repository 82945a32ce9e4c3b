"""Images equal those of transformers, however they are stored; what is not read is said."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import transformers
from PIL import Image
from transformers.image_utils import load_image
from transformers.models.auto.image_processing_auto import get_image_processor_class_from_name

from atlasc.ir.errors import AtlasError
from atlasc.loading.data import inputs_of
from atlasc.loading.loaded_model import LoadedModel
from atlasc.loading.models import model_of

MODULE: Any = SimpleNamespace(main_input_name="pixel_values")
SMALL = {"size": {"height": 6, "width": 5}}
EXIF_ORIENTATION = 0x0112


def model_with(folder: Path, members: dict[str, Any] | None = None, **config: Any) -> LoadedModel:
    """A stand-in for a model of images with a preprocessor_config.json."""
    folder.mkdir(exist_ok=True)
    if members is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(members))
    return LoadedModel(MODULE, "any", SimpleNamespace(**config), folder)


def vit(folder: Path, **config: Any) -> LoadedModel:
    return model_with(folder, SMALL, model_type="vit", **config)


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def pixels(data: object, model: LoadedModel) -> np.ndarray:
    return inputs_of(data, model).arrays["pixel_values"]


def of_transformers(name: str, members: dict[str, Any], image: Any) -> np.ndarray:
    processor = get_image_processor_class_from_name(f"{name}ImageProcessorPil")(**members)
    return np.asarray(processor(image, return_tensors="np")["pixel_values"])


CASES: list[tuple[str, dict[str, Any]]] = [
    ("ViT", {}),
    ("ViT", {"size": 5, "resample": 3, "image_mean": [0.4, 0.5, 0.6], "do_rescale": None}),
    ("ViT", {"do_normalize": False, "do_rescale": False, "size": [5, 7]}),
    ("DeiT", {}),
    ("DeiT", {"size": 9, "crop_size": 7, "do_center_crop": True}),
    ("Beit", {}),
    ("Beit", {"size": 9, "crop_size": 5, "do_center_crop": True, "reduce_labels": False}),
    ("CLIP", {}),
    ("CLIP", {"size": 8, "crop_size": {"height": 6, "width": 6}, "do_convert_rgb": True}),
    ("Siglip", {"size": {"height": 6, "width": 6}, "resample": 2}),
    ("ConvNext", {}),
    ("ConvNext", {"size": {"shortest_edge": 14}, "crop_pct": 0.875}),
    ("Bit", {"size": {"shortest_edge": 8}, "crop_size": 6}),
    ("MobileViT", {"size": {"shortest_edge": 8}, "crop_size": 6}),
    ("MobileViT", {"size": 8, "crop_size": 6, "do_flip_channel_order": False}),
    ("EfficientNet", {"size": 8, "rescale_offset": True, "include_top": False}),
]


@pytest.mark.parametrize(("name", "members"), CASES)
@pytest.mark.parametrize("named", ["{}ImageProcessor", "{}FeatureExtractor", "model_type"])
def test_pixels_equal_those_of_transformers(
    tmp_path: Path, name: str, members: dict[str, Any], named: str
) -> None:
    """By the class that the file names, today's or that of 2021, or by the type of the model."""
    key = "image" if "Image" in named else "feature"
    kind = {f"{key}_{'processor' if key == 'image' else 'extractor'}_type": named.format(name)}
    by_type = named == "model_type"
    model = model_with(
        tmp_path / "m",
        members if by_type else {**members, **kind},
        **({"model_type": name.lower()} if by_type else {}),
    )
    Image.fromarray(noise(13, 17, 3)).save(tmp_path / "x.png")
    found = pixels(tmp_path / "x.png", model)
    expected = of_transformers(name, members, load_image(str(tmp_path / "x.png")))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)


KINDS = {
    "rgba.png": lambda: Image.fromarray(noise(13, 17, 4)),
    "palette.png": lambda: Image.fromarray(noise(13, 17, 3)).quantize(7),
    "gray.png": lambda: Image.fromarray(noise(13, 17)),
    "gray-alpha.png": lambda: Image.fromarray(noise(13, 17, 2), "LA"),
    "two.png": lambda: Image.fromarray(noise(13, 17)).convert("1"),
    "sixteen.png": lambda: Image.fromarray(noise(13, 17).astype(np.uint16) * 9),
    "cmyk.jpg": lambda: Image.fromarray(noise(13, 17, 4), "CMYK"),
    "a.bmp": lambda: Image.fromarray(noise(13, 17, 3)),
    "a.webp": lambda: Image.fromarray(noise(13, 17, 3)),
    "a.tiff": lambda: Image.fromarray(noise(13, 17, 3)),
    "a.gif": lambda: Image.fromarray(noise(13, 17)),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_image_is_read_as_by_transformers(tmp_path: Path, name: str) -> None:
    KINDS[name]().save(tmp_path / name)
    expected = of_transformers("ViT", SMALL, load_image(str(tmp_path / name)))
    found = pixels(tmp_path / name, vit(tmp_path / "m"))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tiff"])
def test_photos_are_turned_as_their_exif_orientation_says(
    tmp_path: Path, orientation: int, suffix: str
) -> None:
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = orientation
    path = tmp_path / f"x{suffix}"
    Image.fromarray(noise(13, 17, 3)).save(path, exif=exif)
    model = vit(tmp_path / "m")
    expected = of_transformers("ViT", SMALL, load_image(str(path)))
    np.testing.assert_allclose(pixels(path, model), expected, atol=1e-5)
    with Image.open(path) as image:
        np.testing.assert_allclose(pixels([image], model), expected, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_an_array_has_its_channels_first_or_last(tmp_path: Path, channels: int) -> None:
    last, model = noise(13, 17, channels), vit(tmp_path / "m")
    image = Image.fromarray(last[:, :, 0] if channels == 1 else last)
    expected = pixels([image], model)
    np.testing.assert_array_equal(pixels([last], model), expected)
    np.testing.assert_array_equal(pixels([np.moveaxis(last, -1, 0)], model), expected)
    for shape in ((channels, 17, 3), (2, 17, 5)):
        with pytest.raises(AtlasError, match="1, 3 or 4 channels"):
            pixels([noise(*shape)], model)


def test_a_model_of_one_channel_reads_gray(tmp_path: Path) -> None:
    Image.fromarray(noise(13, 17, 3)).save(tmp_path / "x.png")
    members = {**SMALL, "do_normalize": False}
    found = pixels(
        tmp_path / "x.png", model_with(tmp_path / "m", members, model_type="vit", num_channels=1)
    )
    gray = Image.open(tmp_path / "x.png").convert("L")
    expected = of_transformers("ViT", members, gray)
    assert found.shape == (1, 1, 6, 5)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_what_is_lost_of_an_image_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    frames = [Image.fromarray(noise(8, 8, seed=seed)) for seed in (0, 1)]
    frames[0].save(folder / "a.gif", save_all=True, append_images=frames[1:])
    Image.fromarray(noise(8, 8, 4)).save(folder / "b.png")
    Image.fromarray(noise(8, 8).astype(np.uint16)).save(folder / "c.png")
    Image.fromarray(noise(8, 8, 3)).save(folder / "d.jpg")
    (folder / "notes.md").write_text("hello")
    (folder / ".hidden").write_text("")
    (folder / "x" / "y").mkdir(parents=True)
    inputs = inputs_of(folder, vit(tmp_path / "m"))
    assert inputs.names == ("a.gif", "b.png", "c.png", "d.jpg")
    said = [f"{headline} {details}" for headline, details in inputs.notes]
    for part, which in (
        ("1 file is left out", "notes.md"),
        ("1 folder is left out", "x/y"),
        ("more than one frame", "a.gif"),
        ("transparent", "b.png"),
        ("more than 8 bits", "c.png"),
    ):
        assert sum(part in text and which in text for text in said) == 1
    assert len(said) == 5
    heard: list[str] = []
    inputs.take([3]).tell(lambda headline, details: heard.append(headline))
    assert len(heard) == 5


def test_an_image_that_cannot_be_read_keeps_its_row_and_says_why(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for name in ("a.png", "c.png"):
        Image.fromarray(noise(8, 8, 3)).save(folder / name)
    (folder / "b.png").write_bytes((folder / "a.png").read_bytes()[:90])
    inputs = inputs_of(folder, vit(tmp_path / "m"))
    assert inputs.names == ("a.png", "b.png", "c.png")
    finite = np.isfinite(inputs.arrays["pixel_values"]).all(axis=(1, 2, 3))
    assert finite.tolist() == [True, False, True]
    assert "cannot be read: " in inputs.faults[1] and not inputs.faults[0]
    heard: list[str] = []
    left = inputs.readable(lambda *note: heard.append(" ".join(note)))
    assert left.names == ("a.png", "c.png") and left.require_finite() is left
    assert len(heard) == 1 and "1 of 3 inputs is left out" in heard[0] and "b.png" in heard[0]
    with pytest.raises(AtlasError, match=r"cannot be used(.|\n)*b.png(.|\n)*cannot be read"):
        inputs.require_finite()
    with pytest.raises(AtlasError, match=r"image b.png cannot be read"):
        inputs_of(folder / "b.png", vit(tmp_path / "m"))
    (folder / "b.png").write_text("words")
    fault = inputs_of(folder, vit(tmp_path / "m")).faults[1]
    assert fault.startswith(
        "this image cannot be read: the file is no image of the kinds PNG, JPEG"
    )


def test_folders_name_the_labels(tmp_path: Path) -> None:
    folder, model = tmp_path / "images", vit(tmp_path / "m", label2id={"cat": 0, "dog": 1})
    for name in ("dog/1.png", "cat/2.jpg"):
        (folder / name).parent.mkdir(parents=True)
        Image.fromarray(noise(8, 8, 3)).save(folder / name)
    labels = inputs_of(folder, model).labels
    assert labels is not None and labels.tolist() == [0, 1]
    (folder / "bird").mkdir()
    Image.fromarray(noise(8, 8, 3)).save(folder / "bird" / "3.webp")
    labels = inputs_of(folder, model).labels
    assert labels is not None and labels.tolist() == ["bird", "cat", "dog"]
    Image.fromarray(noise(8, 8, 3)).save(folder / "4.png")
    inputs = inputs_of(folder, model)
    assert inputs.labels is not None and inputs.labels.tolist() == ["", "bird", "cat", "dog"]
    assert inputs.notes[0][0] == "1 of 4 images have no label"


class DataSet:
    """As `datasets.Dataset`: rows by number; one of its images cannot be decoded."""

    def __init__(self, rows: list[Any], bad: int = -1) -> None:
        self.rows, self.bad = rows, bad

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Any:
        if number == self.bad:
            raise OSError("truncated")
        return self.rows[number]


def test_images_in_memory_are_what_their_files_are(tmp_path: Path) -> None:
    arrays = [noise(8, 9, 3, seed=seed) for seed in range(2)]
    images = [Image.fromarray(array) for array in arrays]
    paths = [tmp_path / f"{number}.png" for number in range(2)]
    for image, path in zip(images, paths, strict=True):
        image.save(path)
    model = vit(tmp_path / "m")
    expected = pixels(paths, model)
    np.testing.assert_allclose(expected[:1], pixels(paths[0], model))
    columns = {"image": images, "label": [3, 4]}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    stored = [{"image": {"bytes": path.read_bytes(), "path": None}} for path in paths]
    for data in (
        images, tuple(images), arrays, np.stack(arrays), np.stack(arrays).transpose(0, 3, 1, 2),
        columns, rows, stored, DataSet(rows), DataSet(list(zip(images, (3, 4), strict=True))),
        [str(path) for path in paths],
    ):  # fmt: skip
        np.testing.assert_array_equal(pixels(data, model), expected)
    np.testing.assert_array_equal(pixels(images[0], model), expected[:1])
    np.testing.assert_array_equal(pixels(arrays[0], model), expected[:1])
    for labelled in (columns, rows, DataSet(list(zip(images, (3, 4), strict=True)))):
        labels = inputs_of(labelled, model).labels
        assert labels is not None and labels.tolist() == [3, 4]
    assert images[0].getpixel((0, 0)) is not None  # still open


def test_one_bad_image_in_memory_does_not_shift_the_others(tmp_path: Path) -> None:
    image, model = Image.fromarray(noise(8, 9, 3)), vit(tmp_path / "m")
    for data in (DataSet([image] * 3, bad=1), [image, "no.png", image], [image, object(), image]):
        inputs = inputs_of(data, model)
        assert [bool(fault) for fault in inputs.faults] == [False, True, False]


def test_scaled_pixels_are_taken_as_they_are(tmp_path: Path) -> None:
    scaled = np.zeros((2, 3, 4, 4), np.float32)
    for data in (scaled, list(scaled), {"pixel_values": scaled}):
        assert inputs_of(data, vit(tmp_path / "m")).arrays["pixel_values"].shape == scaled.shape


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"do_flip_channel_order": True}, "ViTImageProcessor.* does not read(.|\n)*do_flip"),
        ({"rescale_offset": True}, "does not read(.|\n)*rescale_offset"),
        ({"sharpen": 2}, "atlasc does not know(.|\n)*sharpen"),
        ({"image_processor_type": "MyImageProcessor"}, "transformers has no MyImageProcessor"),
        ({"image_processor_type": "Trainer"}, "cannot be read"),
        ({"image_processor_type": "AutoImageProcessor"}, "cannot be used"),
        ({"image_processor_type": "ViltImageProcessor"}, "returns more than the pixels"),
        (
            {"image_processor_type": "DINOv3ViTImageProcessorFast"},
            "cannot be used(.|\n)*Torchvision",
        ),
        ({"size": {"width": 4}}, "cannot be used"),
        ({"size": {"deep": 4}}, "cannot be read"),
        ({"image_mean": [0.5]}, "does not fit the image"),
        ({"do_pad": True, "pad_size": 5000}, "less than or equal to 4096"),
        (
            {"image_processor_type": "CLIPImageProcessor", "size": 4096, "do_center_crop": False},
            "does not fit the image(.|\n)*at most",
        ),
    ],
)
def test_what_the_image_processor_cannot_do_is_refused(
    tmp_path: Path, members: dict[str, Any], message: str
) -> None:
    model = model_with(tmp_path / "m", members, model_type="vit")
    with pytest.raises(AtlasError, match=message):
        inputs_of([Image.fromarray(noise(2, 4, 3))], model)


def test_a_file_that_names_no_class_needs_a_model_that_does(tmp_path: Path) -> None:
    with pytest.raises(AtlasError, match="does not name its image processor"):
        inputs_of([Image.fromarray(noise(2, 4, 3))], model_with(tmp_path / "m", SMALL))


def test_a_processor_for_a_model_in_memory(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        image_size=6, patch_size=3, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8,
    )  # fmt: skip
    module = transformers.ViTForImageClassification(config)
    members = {"size": {"height": 6, "width": 6}, "resample": 3, "image_mean": [0.1, 0.2, 0.3]}
    processor = get_image_processor_class_from_name("DeiTImageProcessorPil")(**members, crop_size=6)
    image = Image.fromarray(noise(13, 17, 3))
    expected = processor(image, return_tensors="np")["pixel_values"]
    for given in (model_of(module, processor=processor), model_of(module, processor)):
        np.testing.assert_allclose(pixels([image], given), expected, atol=1e-5)
    with pytest.raises(AtlasError, match="a processor can only be given for a module in memory"):
        model_of(tmp_path, processor=processor)
    with pytest.raises(AtlasError, match="does not say how images are scaled"):
        inputs_of([image], model_of(module))


def test_the_processor_of_texts_and_images_is_read_where_it_lies(tmp_path: Path) -> None:
    model = model_with(tmp_path / "m", {"size": 99}, model_type="vit")
    nested = {"image_processor": {"image_processor_type": "ViTImageProcessor", **SMALL}}
    (tmp_path / "m" / "processor_config.json").write_text(json.dumps(nested))
    assert pixels([Image.fromarray(noise(13, 17, 3))], model).shape == (1, 3, 6, 5)
    (tmp_path / "m" / "processor_config.json").write_text('{"processor_class": "X"}')
    assert pixels([Image.fromarray(noise(13, 17, 3))], model).shape == (1, 3, 99, 99)
