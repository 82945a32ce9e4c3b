"""``emit`` and ``embed``: files and refusals; tests/atlasc/emit builds and runs what they write."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_model import BATCH, Tiny

from atlasc.emit.project import build_project
from atlasc.ir.errors import AtlasError
from tests.atlasc.cli.command import refused, run


def test_a_server_part_is_enough_to_emit(tiny: Tiny, tmp_path: Path) -> None:
    server = Path(shutil.copytree(tiny.bundle, tmp_path / "server only"))
    shutil.rmtree(server / "client")
    said = run("emit", server, "-o", tmp_path / "project").out
    assert "its README.md says how to use it" in said
    for name in ("CMakeLists.txt", "src/program.cpp", "runtime/CMakeLists.txt"):
        assert (tmp_path / "project" / name).is_file()
    files = {"server/program": "program", "client/interface": "interface"}
    for theirs, own in files.items():
        content = (tmp_path / "project" / f"{own}.safetensors").read_bytes()
        assert content == (tiny.bundle / f"{theirs}.safetensors").read_bytes()
    assert "namespace tiny" in (tmp_path / "project" / "src" / "program.cpp").read_text()
    assert "exists already" in refused("emit", tiny.bundle, "-o", tmp_path / "project")


def test_a_missing_tool_is_said_before_anything_is_written(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    command = ("emit", tiny.bundle, "--build", "-o", tmp_path / "project")
    message = refused(*command)
    assert "CMake was not found" in message
    (tmp_path / "cmake").write_text("#!/bin/sh\n")
    (tmp_path / "cmake").chmod(0o755)
    assert "no C++ compiler was found" in refused(*command)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "the C++ compiler no-such-compiler was not found" in refused(*command)
    assert not (tmp_path / "project").exists()


def test_a_build_that_fails_shows_its_end(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cmake").write_text("#!/bin/sh\necho what cmake says >&2\nexit 1\n")
    (tmp_path / "cmake").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "sh" if shutil.which("sh") else "/bin/sh")
    message = refused("emit", tiny.bundle, "--build", "-o", tmp_path / "project")
    assert "the build failed" in message
    assert "what cmake says" in message
    with pytest.raises(AtlasError, match="the build failed") as caught:
        build_project(tmp_path, "phantom", [])
    assert "Phantom_ROOT" in caught.value.remedy


@pytest.mark.parametrize("count", [1, BATCH])
def test_embed_writes_what_the_client_encrypts(tiny: Tiny, tmp_path: Path, count: int) -> None:
    from safetensors.numpy import load_file

    from atlasc.bundle.folder import load_bundle

    client = Path(shutil.copytree(tiny.bundle, tmp_path / "client only"))
    shutil.rmtree(client / "server")
    output = tmp_path / "inputs.safetensors"
    run("embed", client, "--input", tiny.data, "--count", count, "-o", output)
    found = load_file(output)
    bundle = load_bundle(tiny.bundle)
    arrays = bundle.load_inputs(tiny.data).take(range(count)).arrays
    for name, tensor in bundle.client.prepare(arrays).items():
        assert found[name].dtype == np.float64
        np.testing.assert_array_equal(found[name], tensor)


def test_embed_refuses(tiny: Tiny, tmp_path: Path) -> None:
    command = ("embed", tiny.bundle, "--input", tiny.data)
    message = refused(*command, "-o", tmp_path / "inputs.safetensors")
    assert f"the program answers 1 to {BATCH} at a time" in message
    message = refused(*command, "--count", 1, "-o", tmp_path / "inputs.npz")
    assert "does not end in .safetensors" in message
    assert list(tmp_path.iterdir()) == []
