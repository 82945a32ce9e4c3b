"""Bundles on disk: whole or absent, checked file by file, each role with its part alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_model import Tiny

from atlasc.bundle.folder import load_bundle
from atlasc.bundle.manifest import MAX_TYPED, PROGRAM_FILE, REQUIRED
from atlasc.files import new_folder, save_arrays
from atlasc.ir.errors import AtlasError


@pytest.fixture
def copy(tiny: Tiny, tmp_path: Path) -> Path:
    """A bundle that a test may damage."""
    return Path(shutil.copytree(tiny.bundle, tmp_path / "bundle"))


def edit_manifest(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text()) | changes
    removed = [name for name, value in changes.items() if value is None]
    path.write_text(json.dumps({k: v for k, v in manifest.items() if k not in removed}))


def listed(folder: Path) -> dict[str, str]:
    return load_bundle(folder).manifest.files


def test_the_manifest_lists_every_other_file(tiny: Tiny) -> None:
    manifest = load_bundle(tiny.bundle).manifest
    found = {str(p.relative_to(tiny.bundle)) for p in tiny.bundle.rglob("*") if p.is_file()}
    assert set(manifest.files) == found - {"manifest.json"}
    assert (manifest.target, manifest.batch, manifest.security_bits) == ("sim", 2, 128)


def test_a_bundle_gives_its_modules_back(tiny: Tiny) -> None:
    bundle = load_bundle(tiny.bundle)
    assert bundle.program.level == "ckks"
    assert bundle.poly.level == "poly"
    assert bundle.client.batch == bundle.batch == 2
    assert bundle.model.input_names == ("pixel_values",)


def test_every_fact_is_in_the_identity(copy: Path, tiny: Tiny) -> None:
    identity = load_bundle(tiny.bundle).identity
    assert load_bundle(copy).identity == identity
    edit_manifest(copy, sequence_length=7)
    assert load_bundle(copy).identity != identity


@pytest.mark.parametrize(
    ("fact", "value"),
    [("insecure", True), ("security_bits", 256), ("parameters", {"log_ring_degree": 15})],
)
def test_what_it_says_of_its_security_must_be_true(copy: Path, fact: str, value: object) -> None:
    edit_manifest(copy, **{fact: value})
    with pytest.raises(AtlasError, match=r"bits of security|parameters"):
        load_bundle(copy)


def test_another_batch_is_refused(copy: Path) -> None:
    edit_manifest(copy, batch=1)
    with pytest.raises(AtlasError, match="answers 2 inputs a run, but its manifest says 1"):
        _ = load_bundle(copy).client


@pytest.mark.parametrize("version", [0, 1, 2, 4, "3", None])
def test_another_format_is_refused(copy: Path, version: object) -> None:
    edit_manifest(copy, format=version)
    with pytest.raises(AtlasError, match=f"bundle format {version!r}") as caught:
        load_bundle(copy)
    assert "reads the formats 3 and 5" in caught.value.why


@pytest.mark.parametrize("name", [*REQUIRED, PROGRAM_FILE])
@pytest.mark.parametrize("change", ["removed", "changed", "kept"])
def test_a_file_that_decides_the_answer_must_be_listed(copy: Path, name: str, change: str) -> None:
    files = {k: v for k, v in listed(copy).items() if k != name}
    edit_manifest(copy, files=files)
    if change == "removed":
        (copy / name).unlink()
    elif change == "changed":
        (copy / name).write_bytes((copy / name).read_bytes()[:-1] + b" ")
    with pytest.raises(AtlasError, match=f"damaged(.|\n)*does not list {name}"):
        load_bundle(copy)


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "client/../../x", "", "a//b", "a\x1b[m"]
)
def test_a_name_that_leaves_the_bundle_is_refused(copy: Path, name: str) -> None:
    edit_manifest(copy, files=listed(copy) | {name: "0" * 64})
    with pytest.raises(AtlasError, match="not the name of a file in a bundle") as caught:
        load_bundle(copy)
    assert "\x1b" not in str(caught.value)


def test_a_link_in_the_place_of_a_file_is_refused(copy: Path, tmp_path: Path) -> None:
    place = copy / "server" / "program.air"
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AtlasError, match="the path is a link"):
        load_bundle(copy)
    place.unlink()
    place.symlink_to("/dev/zero")
    with pytest.raises(AtlasError, match="the path is a link"):
        load_bundle(copy)


@pytest.mark.parametrize("role", ["client", "server"])
def test_a_file_too_many_is_refused(copy: Path, role: str) -> None:
    (copy / role / "extra").write_text("not in the manifest")
    with pytest.raises(AtlasError, match=f"{role}/extra does not belong to the bundle"):
        load_bundle(copy)
    (copy / role / "extra").unlink()
    (copy / role / "folder").symlink_to("/")
    with pytest.raises(AtlasError, match=f"{role}/folder does not belong to the bundle"):
        load_bundle(copy)


@pytest.mark.parametrize("name", ["client/embed.safetensors", "server/program.safetensors"])
def test_a_changed_file_is_refused(copy: Path, name: str) -> None:
    data = bytearray((copy / name).read_bytes())
    data[-1] ^= 1
    (copy / name).write_bytes(data)
    with pytest.raises(AtlasError, match=f"{name} was changed"):
        load_bundle(copy)


def test_a_missing_file_is_refused(copy: Path) -> None:
    (copy / "server" / "poly.air").unlink()
    with pytest.raises(AtlasError, match="lacks server/poly.air"):
        load_bundle(copy)


def test_a_model_may_have_many_channels(copy: Path) -> None:
    """Each has ranges of its own in the calibration: MiniLM's are 200,000 numbers."""
    many = {"ranges": [{"low": [0.5] * 1000, "high": [0.5] * 1000}] * 300}
    edit_manifest(copy, calibration=many)
    assert load_bundle(copy).manifest.calibration == many


def test_nothing_else_of_a_manifest_has_many_values(copy: Path) -> None:
    edit_manifest(copy, files=dict.fromkeys(map(str, range(MAX_TYPED)), 1))
    with pytest.raises(AtlasError, match="damaged(.|\n)*more than 200,000 values"):
        load_bundle(copy)
    edit_manifest(copy, calibration=[1] * 300_000)
    with pytest.raises(AtlasError, match="damaged(.|\n)*more than 200,000 values"):
        load_bundle(copy)


def test_a_damaged_manifest_is_refused(copy: Path) -> None:
    whole = (copy / "manifest.json").read_text()
    for changes in ({"parameters": None}, {"more": 1}, {"batch": "2"}, {"batch": 10**400}):
        edit_manifest(copy, **changes)
        with pytest.raises(AtlasError, match=r"manifest.json (is damaged|cannot be read)"):
            load_bundle(copy)
        (copy / "manifest.json").write_text(whole)
    (copy / "manifest.json").write_text("{")
    with pytest.raises(AtlasError, match="manifest.json cannot be read"):
        load_bundle(copy)


def test_other_folders_are_no_bundles(tmp_path: Path) -> None:
    with pytest.raises(AtlasError, match="is not a compiled bundle"):
        load_bundle(tmp_path)
    with pytest.raises(AtlasError, match="not found"):
        load_bundle(tmp_path / "nothing")


@pytest.mark.parametrize(("role", "other"), [("client", "server"), ("server", "client")])
def test_a_role_needs_its_part_alone(copy: Path, role: str, other: str) -> None:
    shutil.rmtree(copy / other)
    assert load_bundle(copy, role).folder == copy  # type: ignore[arg-type]
    assert load_bundle(copy / role, role).folder == copy.resolve()  # type: ignore[arg-type]
    with pytest.raises(AtlasError, match=f"lacks {other}/"):
        load_bundle(copy)


def test_an_existing_output_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("precious")
    with pytest.raises(AtlasError, match="exists already"), new_folder(tmp_path / "mine"):
        raise AssertionError
    assert (tmp_path / "mine" / "file").read_text() == "precious"


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, AtlasError("no"), ValueError])
def test_interrupted_writing_leaves_nothing(
    tmp_path: Path, interruption: type[BaseException] | BaseException
) -> None:
    kind = interruption if isinstance(interruption, type) else type(interruption)

    def write_half() -> None:
        with new_folder(tmp_path / "out") as draft:
            (draft / "half").write_text("written")
            raise interruption

    with pytest.raises(kind):
        write_half()
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(AtlasError, match="cannot be written"),
        new_folder(tmp_path / "file" / "out"),
    ):
        raise AssertionError


def test_arrays_are_written_whole_and_never_over_others(tmp_path: Path) -> None:
    path = tmp_path / "answers.npz"
    save_arrays(path, {"logits": np.arange(3.0)})
    assert path.stat().st_mode & 0o777 == 0o600  # exact numbers tell something of the key
    with np.load(path) as file:
        assert file["logits"].tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(AtlasError, match="exists already"):
        save_arrays(path, {})
    with pytest.raises(AtlasError, match="nowhere does not exist"):
        save_arrays(tmp_path / "nowhere" / "x.npz", {})
    with pytest.raises(AtlasError, match=r"does not end in \.npz"):
        save_arrays(tmp_path / "answers", {})
    assert list(tmp_path.iterdir()) == [path]
