"""What an array file claims is checked before memory is taken for it."""

from __future__ import annotations

import io
import resource
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from atlasc.ir.arrays.tensor_files import read_safetensors
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import read_npz

ARRAYS = {
    "a": np.arange(6.0).reshape(2, 3),
    "b": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
    "c": np.array("text"),
    "d": np.zeros((0, 4)),
    "e": np.array([1 + 2j], dtype=">c16"),
}


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def npy(header: bytes, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_what_numpy_wrote_is_read(tmp_path: Path, write) -> None:
    write(tmp_path / "file.npz", **ARRAYS)
    found = read_npz(tmp_path / "file.npz", 10**6, what="data")
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].flags.writeable and found[name].dtype == array.dtype.newbyteorder("=")


def test_a_bomb_is_refused_before_it_expands(tmp_path: Path) -> None:
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (300000000,), }"
    with (
        zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as file,
        file.open("a.npy", "w") as member,
    ):
        member.write(npy(header))
        for _ in range(300):
            member.write(bytes(10**6))
    assert (tmp_path / "bomb.npz").stat().st_size < 10**6
    before = peak_kib()
    with pytest.raises(AtlasError, match="too large"):
        read_npz(tmp_path / "bomb.npz", 10**6, what="data")
    assert peak_kib() - before < 50_000


@pytest.mark.parametrize(
    "content",
    [
        npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000,), }", b"12345678"),
        npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }"),
        npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"\x80\x04N."),
        npy(b"{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,), }", bytes(8)),
        npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': " + b"(" * 9000),
        npy(b"{'descr': '<U0', 'fortran_order': False, 'shape': (99999999999,), }"),
        b"\x93NUMPY\x09\x00",
        b"",
    ],
    ids=["claims", "negative", "object", "record", "nested", "empty", "version", "nothing"],
)
def test_an_array_that_is_not_what_it_says_is_refused(tmp_path: Path, content: bytes) -> None:
    path = archive(tmp_path / "file.npz", a=content)
    with pytest.raises(AtlasError, match="cannot be read as an .npz"):
        read_npz(path, 10**6, what="data")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_are_unique_and_printable(tmp_path: Path) -> None:
    content = io.BytesIO()
    np.save(content, np.zeros(2))
    for names in (["a.npy", "a.npy"], ["a\x1b[2J.npy"], ["../a.txt"]):
        with zipfile.ZipFile(tmp_path / "file.npz", "w") as file:
            for name in names:
                file.writestr(name, content.getvalue())
        with pytest.raises(AtlasError, match="cannot be read as an .npz"):
            read_npz(tmp_path / "file.npz", 10**6, what="data")


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "file.npz", **ARRAYS)
    content = (tmp_path / "file.npz").read_bytes()
    for damaged in (
        content[:-30],
        content[:100],
        content.replace(b"\x00\x00\x08@", b"\x00\x00\x09@"),
    ):
        (tmp_path / "file.npz").write_bytes(damaged)
        with pytest.raises(AtlasError, match="cannot be read as an .npz"):
            read_npz(tmp_path / "file.npz", 10**6, what="data")


def test_safetensors_are_plain_whole_and_printable(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    save_file({"a": ARRAYS["a"]}, path)
    np.testing.assert_array_equal(read_safetensors(path)["a"], ARRAYS["a"])
    whole = path.read_bytes()
    huge = (2**40).to_bytes(8, "little")
    for damaged in (
        whole[:-1],
        whole[:20],
        b"",
        huge + whole[8:],
        whole.replace(b'"F64"', b'"X64"'),
    ):
        path.write_bytes(damaged)
        with pytest.raises(AtlasError, match="not a valid safetensors file"):
            read_safetensors(path)
    save_file({"a\x1b[2J": ARRAYS["a"]}, path)
    with pytest.raises(AtlasError, match="control characters"):
        read_safetensors(path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(AtlasError, match="not a plain file"):
        read_safetensors(path)


def test_a_directory_that_lies_about_a_size_is_no_help(tmp_path: Path) -> None:
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (9000,), }"
    path = archive(tmp_path / "file.npz", a=npy(header, bytes(3 * 10**8)))
    whole = path.read_bytes()
    true = struct.pack("<I", 10 + len(header) + 3 * 10**8)
    assert whole.count(true) == 2
    path.write_bytes(whole.replace(true, struct.pack("<I", 10 + len(header) + 9000)))
    tracemalloc.start()
    with pytest.raises(AtlasError, match="cannot be read as an .npz"):
        read_npz(path, 10**6, what="data")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 * 10**6


def test_only_what_numpy_writes_is_unpacked(tmp_path: Path) -> None:
    """The dictionary of an LZMA stream takes as much memory as the stream says."""
    with zipfile.ZipFile(tmp_path / "file.npz", "w", zipfile.ZIP_LZMA) as file:
        file.writestr("a.npy", npy(b"{'descr': '|u1', 'fortran_order': False, 'shape': (0,), }"))
    with pytest.raises(AtlasError, match=r"cannot be read as an .npz(.|\n)*NumPy does not write"):
        read_npz(tmp_path / "file.npz", 10**6, what="data")
