"""The head over the vocabulary on the client: the same text, and one matrix where it is tied."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from atlasc.api.session import generate
from atlasc.bundle.folder import Bundle
from atlasc.compilation.checks import check_compile
from atlasc.compilation.options import CompileOptions
from atlasc.ir.arrays.tensor_files import read_safetensors
from atlasc.ir.errors import AtlasError
from tests.atlasc.generation.conftest import VOCABULARY, compiled, model

PROMPT, COUNT = [3, 17, 5], 5


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A model that does not tie its head, whose head the client computes."""
    return compiled(tmp_path_factory.mktemp("apart") / "bundle", head="client")


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return compiled(tmp_path_factory.mktemp("tied") / "bundle", tied=True, prefill=False)


def arrays(bundle: Bundle, role: str) -> list[tuple[int, ...]]:
    """Shapes of a role's arrays with an extent of the vocabulary."""
    place = bundle.step.folder / {"client": "client/embed", "server": "server/program"}[role]
    shapes = [array.shape for array in read_safetensors(place.with_suffix(".safetensors")).values()]
    return [shape for shape in shapes if VOCABULARY in shape]


def test_the_text_is_the_same(bundle: Bundle, apart: Bundle) -> None:
    assert bundle.step.manifest.settings["head"] == "server"
    assert apart.step.manifest.settings["head"] == "client"
    assert generate(apart, PROMPT, COUNT) == generate(bundle, PROMPT, COUNT)
    assert (len(arrays(bundle, "client")), len(arrays(bundle, "server"))) == (1, 1)
    assert (len(arrays(apart, "client")), len(arrays(apart, "server"))) == (2, 0)


def test_a_tied_head_is_the_clients_and_is_stored_once(tied: Bundle) -> None:
    assert tied.step.manifest.settings["head"] == "client"
    assert (len(arrays(tied, "client")), len(arrays(tied, "server"))) == (1, 0)
    with torch.no_grad():
        ids = torch.tensor([PROMPT])
        found = model(tied=True).generate(ids, max_new_tokens=COUNT, do_sample=False)
    assert generate(tied, PROMPT, COUNT).ids == found[0, len(PROMPT) :].tolist()


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"head": "client"}, "no effect without --generate"),
        ({"head": "both", "generate": True}, "--head cannot be 'both'"),
    ],
)
def test_options_that_are_refused(tmp_path: Path, given: dict, what: str) -> None:
    with pytest.raises(AtlasError, match=what):
        check_compile(tmp_path / "bundle", CompileOptions(target="sim", **given))
