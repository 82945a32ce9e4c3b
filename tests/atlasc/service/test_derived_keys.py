"""A client sends fewer keys than a program rotates with, and its server derives the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import atlasc
from atlasc.bundle.sent import sent_of
from atlasc.program.key_plan import key_plan
from atlasc.runtime.interface import keys_of
from tests.atlasc.cli.command import run
from tests.atlasc.service.running import Running

X = np.random.default_rng(0).uniform(-1, 1, (40, 8, 16)).astype(np.float32)


class Powers(nn.Module):
    """Rotations come last, far below the top of the modulus."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.last = nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        for _ in range(4):
            x = x * x
        return self.last(x)


def compiled(limit: int | None) -> atlasc.Program:
    options: dict[str, Any] = {"recipe": "is", "target": "cpu", "upload_at_most": limit}
    return atlasc.compile(Powers(), {"x": X}, progress=False, **options)


def key_bytes(program: atlasc.Program) -> int:
    sent = sent_of(program.bundle)
    assert sent is not None
    return sent.bytes.keys


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One that derives no key, and one of the same rotations that does."""
    every = compiled(None)
    fewer = compiled(key_bytes(every) - 1)
    folder = tmp_path_factory.mktemp("derived")
    for name, program in (("every", every), ("fewer", fewer)):
        program.save(folder / name)
    return [folder / "every", folder / "fewer"]


def test_rotations_stay_and_bytes_shrink(programs: list[Path]) -> None:
    """In the text of the IR, in the server's file and in the client's one."""
    bundles = [atlasc.load(folder).bundle for folder in programs]
    plans = [key_plan(bundle.program) for bundle in bundles]
    assert plans[0].rotations == plans[1].rotations and not plans[0].derivation.roots
    assert len(plans[1].derivation.roots) > len(plans[1].sent)
    client, server = (getattr(bundles[1], role).interface for role in ("client", "server"))
    assert keys_of(client) == keys_of(server) == plans[1]
    every, fewer = (bundle.manifest.costs["seconds"] for bundle in bundles)
    assert every == fewer
    sizes = [key_bytes(atlasc.load(folder)) for folder in programs]
    assert sizes[1] < 0.75 * sizes[0]
    told = run("inspect", programs[1]).out
    assert f"of which the server derives {len(plans[1].derivation.roots)}" in told


def test_the_same_answers(programs: list[Path], tmp_path: Path) -> None:
    """In two processes' roles, as exact as with keys that are sent."""
    with torch.no_grad():
        expected = Powers()(torch.from_numpy(X[:1])).numpy()
    errors = []
    for folder in programs:
        keys = tmp_path / folder.name
        atlasc.keygen(folder, keys, progress=False)
        size = (keys / "server" / "evaluation.key").stat().st_size
        assert size == key_bytes(atlasc.load(folder))
        client, server = atlasc.Client(folder, keys), atlasc.Server(folder, keys)
        found = client.decrypt(server.execute(client.encrypt(X[:1])))
        errors.append(float(np.abs(found.outputs["output"] - expected).max()))
    assert max(errors) < 1e-6
    with pytest.raises(atlasc.AtlasError, match="made for another program") as refusal:
        atlasc.Server(programs[0], tmp_path / "fewer")
    assert "keys are missing" in refusal.value.why
    assert atlasc.Server(programs[1], tmp_path / "every").bundle  # has all that it could derive


def test_over_a_service(
    programs: list[Path], start: Callable[..., Running], tmp_path: Path
) -> None:
    service = start(bundle=programs[1])
    token = service.token("acme")
    with atlasc.connect(service.url, token=token, folder=tmp_path / "folder") as connection:
        found = connection.query(X[:1])
    with torch.no_grad():
        expected = Powers()(torch.from_numpy(X[:1])).numpy()
    assert np.abs(found.outputs["output"] - expected).max() < 1e-6
    (told,) = service.call("GET", "/config", token).json["programs"]
    assert told["key_bytes"] == key_bytes(atlasc.load(programs[1]))
