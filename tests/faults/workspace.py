"""The commands that write, with settings that make each one short, and a folder where all ran once.

Each is described by its arguments, which name files of the folder, and by what makes its output
valid. A fault test runs one again, in a folder of its own, and disturbs it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.small_model import write_model

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits_vit"


@dataclass(frozen=True)
class Command:
    """A command that writes.

    Attributes:
        arguments: its words; ``{here}`` is the workspace, ``{out}`` the output.
        output: name of the output.
        valid: raises if what lies at a path is not complete.
        beside: other files that it leaves beside its output.
    """

    arguments: str
    output: str
    valid: Callable[[Path], object]
    beside: frozenset[str] = frozenset()

    def words(self, here: Path, output: Path) -> list[str]:
        """The command line."""
        words = (
            word.format(here=here, out=output, digits=DIGITS) for word in self.arguments.split()
        )
        return [sys.executable, "-m", "atlasc", *words]


def _bundle(path: Path) -> None:
    from atlasc.bundle.folder import load_bundle

    bundle = load_bundle(path)
    assert bundle.program.outputs and bundle.poly.outputs and bundle.client.interface.outputs


def _front(path: Path) -> None:
    from atlasc.compilation.fronts import load_front

    saved = load_front(path)
    assert saved.front.points
    assert (path / "front.html").read_text().rstrip().endswith("</html>")
    rows = list(map(json.loads, (path / "evaluations.jsonl").read_text().splitlines()))
    trials = [row for row in rows if "held_back" in row]
    assert len(rows) == 1 + saved.front.distinct + len(trials)
    assert len(trials) == (len(saved.front.points) + 1 if saved.front.held_back else 0)


def _keys(path: Path) -> None:
    from atlasc.targets import find_target

    assert {entry.name for entry in path.iterdir()} == {"client", "server"}
    index = json.loads((path / "client" / "keys.json").read_text())
    target = find_target(index["target"])
    parameters = target.parameters.from_dict(index["parameters"])
    for role in ("client", "server"):
        target.role_engine(role, path / role, parameters)


def _ciphertexts(path: Path) -> None:
    from tests.sealed_files import opened

    _, arrays = opened(path.read_bytes())
    sizes = [len(array.data) for name, array in arrays.items() if "/" in name]
    assert sizes and all(size > 100_000 for size in sizes)


def _project(path: Path) -> None:
    for name in ("CMakeLists.txt", "README.md", "src/program.cpp", "interface.safetensors"):
        assert (path / name).stat().st_size > 100, name


def _arrays(path: Path) -> None:
    import numpy as np

    with np.load(path) as file:
        assert all(np.isfinite(file[name]).all() for name in file.files) and file.files


def _timing(path: Path) -> None:
    assert json.loads(path.read_text())["ops"]


def _safetensors(path: Path) -> None:
    from safetensors.numpy import load_file

    assert load_file(path)


def _module(path: Path) -> None:
    from atlasc.ir.text.storage import load_module

    assert load_module(path).outputs


def _lowered(path: Path) -> None:
    _module(path / "program.air")


def _json(path: Path) -> None:
    assert json.loads(path.read_text())


_SEARCH = "--inputs 2 --strategy atlas{{evaluations=20}}"  # for str.format
_COMPILE = "compile {here}/small.pt2 --data {here}/images.npz"
COMMANDS: Mapping[str, Command] = {
    "compile": Command(f"{_COMPILE} --recipe is -o {{out}}", "bundle", _bundle),
    "search": Command(
        f"search {{digits}}/model --data {{digits}}/calibration.npz {_SEARCH} -o {{out}}",
        "front",
        _front,
    ),
    "keygen": Command("keygen {here}/bundle --keys {out}", "keys", _keys),
    "encrypt": Command(
        "encrypt {here}/bundle --keys {here}/keys --input {here}/images.npz --count 1 -o {out}",
        "query",
        _ciphertexts,
    ),
    "execute": Command(
        "execute {here}/bundle --keys {here}/keys --query {here}/query -o {out}",
        "answer",
        _ciphertexts,
        frozenset({"answer.timing.json"}),
    ),
    "decrypt": Command(
        "decrypt {here}/bundle --keys {here}/keys --answer {here}/answer -o {out}",
        "outputs.npz",
        _arrays,
    ),
    "emit": Command("emit {here}/bundle -o {out}", "project", _project),
}
"""Those that the kills are over, in the order in which they need each other."""

MORE: Mapping[str, Command] = {
    "embed": Command(
        "embed {here}/bundle --input {here}/images.npz --count 1 -o {out}",
        "inputs.safetensors",
        _safetensors,
    ),
    "run": Command(
        "run {here}/bundle --target sim --input {here}/images.npz --index 0 -o {out}",
        "run.npz",
        _arrays,
        frozenset({"run.timing.json"}),
    ),
    "trace": Command(
        "trace {here}/small.pt2 -o {out}", "nn.air", _module, frozenset({"nn.safetensors"})
    ),
    "opt": Command("opt {here}/bundle/server/program.air -o {out}", "opt.air", _module),
    "calibrate": Command(
        "calibrate {digits}/model --data {digits}/calibration.npz -o {out}", "ranges.json", _json
    ),
    "lower": Command("lower {here}/nn.air --data {here}/images.npz -o {out}", "lowered", _lowered),
    "inspect": Command(
        "inspect {here}/bundle --graph {out}", "graph.svg", lambda path: path.read_text()
    ),
}
"""The other commands that write files of their own."""


@dataclass
class Workspace:
    """A folder where every command ran once.

    Attributes:
        here: the folder.
        seconds: of each run.
        writing: seconds of each run after the first file of its output appeared.
    """

    here: Path
    seconds: dict[str, float] = field(default_factory=dict)
    writing: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def make(here: Path, commands: Mapping[str, Command] = COMMANDS) -> Workspace:
        """Write the model and run the commands."""
        workspace = Workspace(here)
        write_model(here)
        for name, command in commands.items():
            begin, known = time.monotonic(), set(os.listdir(here))
            process = start(command, here, here / command.output)
            first = None
            while process.poll() is None:
                if first is None and set(os.listdir(here)) - known:
                    first = time.monotonic()
                time.sleep(0.002)
            assert process.returncode == 0, process.communicate()[1]
            process.communicate()
            command.valid(here / command.output)
            end = time.monotonic()
            workspace.seconds[name] = end - begin
            workspace.writing[name] = end - (first or end)
        return workspace


def start(command: Command, here: Path, output: Path, **options: Any) -> subprocess.Popen[str]:
    """Begin a command in a process group of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment |= {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    return subprocess.Popen(
        command.words(here, output),
        cwd=ROOT, env=environment, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def finish(command: Command, here: Path, output: Path, **options: Any) -> tuple[int, str, str]:
    """Run a command to its end; exit code, output and messages."""
    process = start(command, here, output, **options)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def remove(path: Path) -> None:
    """Remove a file or a folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
