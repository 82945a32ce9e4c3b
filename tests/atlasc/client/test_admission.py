"""Inputs that spoil a batch: not finite, or far larger than those of calibration."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from tiny_model import Tiny
from typer.testing import CliRunner

from atlasc.api.admission import admit
from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.cli import app
from atlasc.client.checks import faults
from atlasc.ir.errors import AtlasError
from atlasc.progress import quiet


@pytest.fixture(scope="module")
def bundle(tiny: Tiny) -> Bundle:
    return load_bundle(tiny.bundle)


def pixels(tiny: Tiny, *factors: float) -> np.ndarray:
    """An image for each factor, so much brighter than it was."""
    with np.load(tiny.data) as file:
        images = file["pixel_values"][: len(factors)]
    return images * np.array(factors, np.float32).reshape(-1, 1, 1, 1)


@pytest.fixture
def mixed(tiny: Tiny, tmp_path: Path) -> Path:
    """Five images: a good one, far too bright, brighter, NaN, beyond any number."""
    images = pixels(tiny, 1, 60, 1.7, 1, 3e38)
    images[3, 0, 0, 0] = np.nan
    np.savez(tmp_path / "mixed.npz", pixel_values=images)
    return tmp_path / "mixed.npz"


def atlasc(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_no_way_of_the_client_takes_what_is_not_finite(
    tiny: Tiny, bundle: Bundle, value: float
) -> None:
    images = pixels(tiny, 1, 1)
    images[1, 0, 2, 3] = value
    for call in (bundle.client.prepare, bundle.client.query):
        with pytest.raises(AtlasError, match="input 1 cannot be encrypted") as caught:
            call({"pixel_values": images})
        assert "1 value of its pixel_values is not finite" in caught.value.why


def test_a_text_of_padding_alone_is_a_fault() -> None:
    ids = np.array([[5, 6, 0], [0, 0, 0]])
    found = faults({"input_ids": ids, "attention_mask": np.sign(ids)})
    assert found == ["", "it has no token but padding"]


def test_the_factor_is_that_of_what_is_encrypted(tiny: Tiny, bundle: Bundle) -> None:
    found = bundle.client.examine({"pixel_values": pixels(tiny, 1, 60, 1.7, 3e38)})
    assert [reach.refused for reach in found] == [False, True, False, True]
    assert [reach.large for reach in found] == [False, True, True, True]
    assert found[1].ratio == pytest.approx(41.4, rel=0.01)  # the bias does not grow
    (half,) = bundle.client.examine({"pixel_values": pixels(tiny, 0.5)})
    (whole,) = bundle.client.examine({"pixel_values": pixels(tiny, 1)})
    assert 0.4 < half.ratio / whole.ratio < 0.6
    assert 0.8 < whole.ratio <= 1


def test_a_query_far_above_calibration_needs_a_word(tiny: Tiny, bundle: Bundle) -> None:
    wild = {"pixel_values": pixels(tiny, 1, 60)}
    with pytest.raises(AtlasError, match="input 1 is not encrypted") as caught:
        bundle.client.query(wild)
    assert "41.4 times what calibration saw" in caught.value.why
    assert "--unchecked" in caught.value.remedy
    assert bundle.client.query(wild, unchecked=True).count == 2


def test_run_leaves_out_what_would_spoil_the_batch(tiny: Tiny, mixed: Path) -> None:
    result = atlasc("run", tiny.bundle, "--input", mixed, "--json")
    assert result.exit_code == 3, result.stderr
    record = json.loads(result.stdout)
    assert list(record["refused"]) == [f"mixed.npz[{row}]" for row in (1, 3, 4)]
    answered = [answer is not None for answer in record["outputs"]["output"]]
    assert answered == [True, False, True, False, False]
    assert "3 inputs are left out" in result.stderr
    assert "mixed.npz[3]: 1 value of its pixel_values is not finite" in result.stderr
    assert "mixed.npz[1]: it reaches 41.4 times" in result.stderr


def test_a_client_alone_warns_of_large_inputs(tiny: Tiny, mixed: Path, tmp_path: Path) -> None:
    """With the whole bundle the verdict tells more."""
    client = Path(shutil.copytree(tiny.bundle, tmp_path / "client"))
    shutil.rmtree(client / "server")
    for folder, warned in ((client, True), (tiny.bundle, False)):
        place = tmp_path / f"{folder.name}.safetensors"
        result = atlasc("embed", folder, "--input", mixed, "--index", "0,2", "-o", place)
        assert result.exit_code == 0, result.stderr
        assert ("1 input is larger than the inputs of calibration" in result.stderr) == warned


def test_embed_writes_the_rest(tiny: Tiny, mixed: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    place = tmp_path / "in.safetensors"
    result = atlasc("embed", tiny.bundle, "--input", mixed, "--index", "0,1", "-o", place)
    assert result.exit_code == 0, result.stderr
    assert "1 input is left out" in result.stderr
    (tensor,) = load_file(place).values()
    assert len(tensor) == 1


@pytest.mark.parametrize("command", ["run", "embed"])
def test_strict_refuses_all_and_none_left_is_an_error(
    tiny: Tiny, mixed: Path, tmp_path: Path, command: str
) -> None:
    place = tmp_path / ("x.npz" if command == "run" else "x.safetensors")
    for options in (("--index", "0,1", "--strict"), ("--index", "1,3,4")):
        result = atlasc(command, tiny.bundle, "--input", mixed, "-o", place, *options)
        assert result.exit_code == 2, result.output
        assert "not fit to be encrypted" in result.stderr
        assert not place.exists()


def test_check_input_judges_them_too(tiny: Tiny, mixed: Path) -> None:
    result = atlasc("check-input", tiny.bundle, "--input", mixed, "--json")
    assert result.exit_code == 1
    faults = [entry["fault"] for entry in json.loads(result.stdout)["inputs"]]
    assert faults[0] is faults[2] is None
    assert "41.4 times" in faults[1]
    assert "not finite" in faults[3]


@pytest.mark.encrypted
def test_encrypt_names_what_it_leaves_out_before_it_asks_for_keys(
    tiny: Tiny, mixed: Path, tmp_path: Path
) -> None:
    result = atlasc(
        "encrypt", tiny.bundle, "--target", "cpu", "--keys", tmp_path / "none",
        "--input", mixed, "--index", "0,1", "-o", tmp_path / "query",
    )  # fmt: skip
    assert result.exit_code == 2
    assert "1 input is left out" in result.stderr
    assert "make them with atlasc keygen" in result.stderr


def test_a_client_without_the_servers_part_may_be_strict(tiny: Tiny, tmp_path: Path) -> None:
    """It refuses what it can tell."""
    client = Path(shutil.copytree(tiny.bundle, tmp_path / "client"))
    shutil.rmtree(client / "server")
    bundle = load_bundle(client, "client")
    given = bundle.load_inputs(tiny.data)
    assert len(admit(bundle, given, quiet, strict=True).rows) == len(given)
    given.arrays["pixel_values"][1] *= 60
    with pytest.raises(AtlasError, match="1 input is not fit to be encrypted"):
        admit(bundle, given, quiet, strict=True)
