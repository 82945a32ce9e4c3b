"""Client and server of a compiled program where neither torch nor transformers is installed, nor
anything else that only the compiler wants.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from tiny_model import Tiny

import atlasc

COMPILER = "torch,transformers,huggingface_hub,pymoo,matplotlib,jinja2,mpmath,ray,pandas,sklearn"
SCRIPT = """
import json, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import numpy, atlasc

bundle, keys, data = sys.argv[2:]
data = json.loads(data)
if isinstance(data, dict):
    data = {name: numpy.array(values, numpy.float32) for name, values in data.items()}
atlasc.keygen(bundle, keys)
client, server = atlasc.Client(bundle, keys), atlasc.Server(bundle, keys)
answers = client.decrypt(server.execute(client.encrypt(data)))
print(json.dumps({name: values.tolist() for name, values in answers.outputs.items()}))
"""


def answered(bundle: Path, keys: Path, data: object) -> dict[str, np.ndarray]:
    """What a process without the compiler's libraries answers."""
    words = ["-c", SCRIPT, COMPILER, bundle, keys, json.dumps(data)]
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name: np.array(values) for name, values in json.loads(done.stdout).items()}


def test_an_image_is_answered(tiny: Tiny, tmp_path: Path) -> None:
    with np.load(tiny.data) as file:
        pixels = file["pixel_values"][:2]
    found = answered(tiny.bundle, tmp_path / "keys", {"pixel_values": pixels.tolist()})
    expected = atlasc.load(tiny.bundle).run({"pixel_values": pixels}).outputs
    np.testing.assert_allclose(found["output"], expected["output"], atol=1e-6)


def test_pairs_of_texts_are_answered(pairs_program: atlasc.Program, tmp_path: Path) -> None:
    data = [["a cat", "on"], ["cat " * 20, "a"]]  # one is cut
    found = answered(pairs_program.folder, tmp_path / "keys", data)
    expected = pairs_program.run([tuple(pair) for pair in data]).outputs
    for name, values in found.items():
        np.testing.assert_allclose(values, expected[name], atol=1e-6)


def test_a_tokenizer_that_is_missing_is_said(pairs_program: atlasc.Program, tmp_path: Path) -> None:
    script = SCRIPT.replace("client.encrypt(data)", 'client.encrypt([["a cat", "on"]])')
    words = ["-c", script, COMPILER + ",tokenizers", pairs_program.folder, tmp_path / "keys", "[]"]
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True)
    assert "pip install tokenizers" in done.stderr


def test_a_tokenizer_that_nobody_can_read_hinders_no_images(tiny: Tiny, tmp_path: Path) -> None:
    archive = tmp_path / tiny.archive.name
    archive.write_bytes(tiny.archive.read_bytes())
    (tmp_path / "tokenizer.json").write_text("no tokenizer")
    program = atlasc.compile(str(archive), tiny.data, batch=2, target="sim", recipe="is")
    client = program.folder / "client" / "model"
    assert not (client / "tokenizer.json").exists()
    with np.load(tiny.data) as file:
        assert not program.run({"pixel_values": file["pixel_values"][:1]}).refused


def test_compiling_names_the_extra(tiny: Tiny, tmp_path: Path) -> None:
    body = "import atlasc\natlasc.compile(sys.argv[2], sys.argv[3], target='sim')\n"
    script = SCRIPT[: SCRIPT.index("import numpy, atlasc")] + body
    words = ["-c", script, COMPILER, tiny.archive, tiny.data]
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True)
    assert "AtlasError: the compiler's libraries are not installed here" in done.stderr
    assert "pip install 'WHEEL[compile]'" in done.stderr
