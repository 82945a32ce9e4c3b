"""A client of a program for a GPU needs none: the engine of the processors makes its files. The
server is that of an emitted project, on the stand-in of CUDA.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from cpp_build import RUNTIME
from safetensors.numpy import load_file
from torch import nn

import atlasc
from atlasc.runtime.native import load_library
from tests.atlasc.emit.cpp import command_line, refused, reseal
from tests.atlasc.emit.cpp import run as done

Build = Callable[..., Path]
pytestmark = pytest.mark.deep("engines")
if "cpu" not in load_library().engines:
    pytest.skip("atlasc was installed without the engine cpu", allow_module_level=True)


class Squared(nn.Module):
    """Two layers with a square between them: a program without polynomials to choose."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        return self.second(y * y)


@dataclass(frozen=True)
class Served:
    """A program for ``cuda``, its server on the stand-in, and an input with its answer."""

    program: Path
    server: Path
    inputs: dict[str, np.ndarray]
    expected: np.ndarray

    def answer(self, keys: str) -> list[object]:
        """The server's command for the files of a client."""
        given = ("--program", self.program, "--keys", keys, "--query", "query")
        return [self.server, *given, "--output", "answer"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, build: Build) -> Served:
    folder = tmp_path_factory.mktemp("clients")
    torch.manual_seed(0)
    model, x = Squared().eval(), np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    program = atlasc.compile(model, {"x": x}, recipe="is", target="cuda")
    program.save(folder / "program")
    server = build("server", RUNTIME / "programs/server.cpp", device="cuda")
    with torch.no_grad():
        expected = model(torch.from_numpy(x[:1])).numpy()
    return Served(folder / "program", server, {"x": x[:1]}, expected)


def test_keys_and_a_query_of_the_processors(served: Served, tmp_path: Path) -> None:
    """By Python: this installation has no engine for GPUs."""
    atlasc.keygen(served.program, tmp_path / "keys")
    client = atlasc.Client(served.program, tmp_path / "keys")
    (tmp_path / "query").write_bytes(client.encrypt(served.inputs))
    done(served.answer("keys/server/evaluation.key"), tmp_path)
    found = client.decrypt((tmp_path / "answer").read_bytes()).outputs
    np.testing.assert_allclose(*found.values(), served.expected, atol=1e-4)


def test_a_client_in_cpp(served: Served, tmp_path: Path, build: Build) -> None:
    """A server takes no keys and no query that name another engine."""
    program = build("client", RUNTIME / "programs/client.cpp", device="host")
    client, secret = [program, "--program", served.program], ("--key", "keys/secret.key")
    data = tmp_path / "x.npz"
    np.savez(data, **served.inputs)
    command_line("embed", served.program, "--input", data, "-o", tmp_path / "x.safetensors")
    done([*client, "keygen", "--output", "keys"], tmp_path)
    done([*client, "encrypt", *secret, "--input", "x.safetensors", "--output", "query"], tmp_path)
    answer = served.answer("keys/evaluation.key")
    done(answer, tmp_path)
    read = [*client, "decrypt", *secret, "--answer", "answer", "--output", "y.safetensors"]
    done(read, tmp_path)
    found = load_file(tmp_path / "y.safetensors")
    np.testing.assert_allclose(*found.values(), served.expected, atol=1e-4)

    (tmp_path / "answer").unlink()
    for name, why in (
        ("query", "query has ciphertexts of the engine cpu"),
        ("keys/evaluation.key", "holds no evaluation keys of the cuda engine"),
    ):
        reseal(tmp_path / name, lambda header, _: header["__metadata__"].update(engine="cpu"))
        assert why in refused(answer, tmp_path)
