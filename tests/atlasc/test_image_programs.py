"""A model of images in memory: compiled from images, asked with images, one of them broken."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import ViTConfig, ViTForImageClassification
from transformers.models.auto.image_processing_auto import get_image_processor_class_from_name

import atlasc
from atlasc.ir.errors import AtlasError


@pytest.fixture(scope="module")
def model() -> ViTForImageClassification:
    torch.manual_seed(0)
    config = ViTConfig(
        image_size=8, patch_size=4, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16,
    )  # fmt: skip
    return ViTForImageClassification(config).eval()


def images(count: int, seed: int = 0) -> list[Image.Image]:
    noise = np.random.default_rng(seed).integers(0, 256, (count, 11, 9, 3), np.uint8)
    return [Image.fromarray(one) for one in noise]


def test_images_and_their_processor_in_memory(
    model: ViTForImageClassification, tmp_path: Path
) -> None:
    size = {"height": 8, "width": 8}
    processor = get_image_processor_class_from_name("DeiTImageProcessorPil")(
        size=size, crop_size=size
    )
    program = atlasc.compile(
        model, images(12), processor=processor, recipe="is", target="sim", held_back=0.25
    )
    asked = [*images(2, seed=1), "missing.png"]
    answers = program.run(asked, unchecked=True)
    with torch.no_grad():
        expected = model(**processor(asked[:2], return_tensors="pt")).logits.numpy()
    np.testing.assert_allclose(answers.outputs["logits"][:2], expected, atol=0.05)
    assert np.isnan(answers.outputs["logits"][2]).all() and 2 in answers.unanswered
    assert any("data[2]" in text and "cannot be read" in text for text in answers.warnings)
    program.save(tmp_path / "program")
    stored = atlasc.load(tmp_path / "program")
    np.testing.assert_array_equal(
        stored.inputs(asked[:2]).arrays["pixel_values"],
        processor(asked[:2], return_tensors="np")["pixel_values"],
    )
    assert json.loads((tmp_path / "program" / "manifest.json").read_text())["model"]["notes"] == []
    with pytest.raises(AtlasError, match=r"not fit to be encrypted(.|\n)*cannot be read"):
        program.run(asked, strict=True)


def test_a_bad_image_in_the_data_is_left_out_and_said(model: ViTForImageClassification) -> None:
    size = {"height": 8, "width": 8}
    processor = get_image_processor_class_from_name("ViTImageProcessorPil")(size=size)
    data = [*images(12), "missing.png"]
    program = atlasc.compile(model, data, processor=processor, recipe="is", target="sim")
    assert any("1 of 13 inputs is left out" in text for text in program.warnings)
