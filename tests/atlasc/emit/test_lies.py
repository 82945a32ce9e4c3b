"""Files of programs that lie: Python's reader and libatlasc's refuse each in the same words. What
is true of another program is refused by calls that were compiled."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from atlasc.bundle.folder import load_bundle
from atlasc.bundle.manifest import PROGRAM_FILE
from atlasc.bundle.program_file import StoredProgram
from atlasc.ir.errors import AtlasError
from tests.atlasc.bundle.test_program_file import LIES, SHAPE, other_text
from tests.atlasc.emit.cpp import Project, refused


@pytest.fixture(scope="module")
def own(digits: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle, one file of which may be changed."""
    folder = tmp_path_factory.mktemp("lies") / "bundle"
    return Path(shutil.copytree(digits.bundle, folder))


def refusal(project: Project, bundle: Path) -> str:
    """What the server says of a file, before it looks for any other one."""
    files = (word for one in ("keys", "query", "output") for word in (f"--{one}", one))
    return refused([*project.server, "--program", bundle, *files], bundle)


@pytest.mark.parametrize("name", LIES)
def test_both_readers_say_the_same(digits: Project, own: Path, name: str) -> None:
    lie, said = LIES[name]
    path = own / PROGRAM_FILE
    shutil.copyfile(digits.bundle / PROGRAM_FILE, path)
    lie(path)
    with pytest.raises(AtlasError) as caught:
        StoredProgram.read(path, load_bundle(digits.bundle).manifest.program, SHAPE)
    message = refusal(digits, own)
    assert message == f"error: {caught.value.render()}\n"
    assert said in message


def test_compiled_calls_are_of_one_file(digits: Project, own: Path) -> None:
    """Here a file with the same calls, whose places alone differ."""
    path = own / PROGRAM_FILE
    shutil.copyfile(digits.bundle / PROGRAM_FILE, path)
    assert "file query not found" in refusal(digits, own)
    other_text(lambda text: text["calls"][0].update(location="elsewhere"))(path)
    StoredProgram.read(path, load_bundle(digits.bundle).manifest.program, SHAPE)
    message = refusal(digits, own)
    assert f"file {path} is of another program than the compiled calls" in message
    assert "or emit the program again and build it" in message
