"""The user's own module is asked beside its program: other answers are refused, and said why."""

from __future__ import annotations

import random
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import atlasc
from atlasc.bundle.kept import KEPT, OWNER, kept_of
from atlasc.client.program import decrypt_all
from atlasc.compilation.oracle.asking import ask
from atlasc.compilation.prepare import trace_model
from atlasc.ir.errors import AtlasError
from atlasc.loading.inputs import Inputs
from atlasc.loading.models import model_of

X = np.random.default_rng(0).standard_normal((20, 6, 8)).astype(np.float32)


class Base(nn.Module):
    """Two layers, and what a module may keep in attributes of Python."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.head = nn.Linear(8, 8), nn.Linear(8, 3)
        self.calls, self.kept, self._hidden = 0, None, dict[str, Any]()

    def answer(self, x):
        return self.head(torch.tanh(self.inner(x)).mean(1))


class Counts(Base):
    def forward(self, x):
        self.calls += 1
        return self.answer(x)


class Keeps(Base):
    def forward(self, x):
        self.kept = self.answer(x)
        return self.kept


class ReadsCount(Base):
    def forward(self, x):
        self.calls += 1
        return self.answer(x) * self.calls


class FirstInput(Base):
    def forward(self, x):
        if self.kept is None:
            self.kept = x
        return self.answer(x + self.kept)


class Hidden(Base):
    def forward(self, x):
        self._hidden.setdefault("first", x)
        return self.answer(x + self._hidden["first"])


class Draws(Base):
    def forward(self, x):
        return self.answer(x) * (1 + random.random())


class Exported(Base):
    def forward(self, x):
        return self.answer(x) * (2 if torch.compiler.is_exporting() else 1)


class Rounded(Base):
    """Rounds to 16 bits on the way, which is rounding, and no other model."""

    def forward(self, x):
        return self.answer(x.to(torch.bfloat16).float())


def compiled(model: nn.Module, **options: Any) -> atlasc.Program:
    return atlasc.compile(
        model.eval(), {"x": X}, recipe="is", target="sim", progress=False, **options
    )


@pytest.mark.parametrize("kind", [Counts, Keeps, Rounded])
def test_a_harmless_attribute_is_frozen_and_said(kind: type[Base]) -> None:
    model = kind()
    program = compiled(model)
    assert model.calls == 0 and model.kept is None  # the user's module is not touched
    said = [one for one in program.warnings if "in an attribute" in one]
    assert len(said) == (kind is not Rounded)
    assert all("test_oracle.py:" in one for one in said)


@pytest.mark.parametrize(
    ("kind", "fault", "place"),
    [
        (ReadsCount, "answers the same input otherwise at another call", "self.calls of"),
        (FirstInput, "the traced graph answers otherwise than the module", "self.kept of"),
        (Hidden, "the traced graph answers otherwise than the module", "self._hidden of"),
        (Draws, "answers the same input otherwise at another call", "Draws.forward"),
        (Exported, "the traced graph answers otherwise than the module", "Exported.forward"),
    ],
)
def test_other_answers_than_the_module_are_refused(
    kind: type[Base], fault: str, place: str
) -> None:
    with pytest.raises(AtlasError, match=fault) as caught:
        compiled(kind())
    assert place in caught.value.where and "test_oracle.py:" in caught.value.where
    assert caught.value.remedy


def test_a_packed_program_with_other_answers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*given: Any) -> Any:
        return {name: slots + 0.1 for name, slots in decrypt_all(*given).items()}

    monkeypatch.setattr("atlasc.compilation.oracle.figures.decrypt_all", wrong)
    with pytest.raises(AtlasError, match="packed program answers otherwise than its polynomials"):
        compiled(Counts())


def test_figures_and_answers_are_those_of_the_module(tmp_path: Path) -> None:
    model = Base()
    model.forward = model.answer  # type: ignore[method-assign]
    program = compiled(model)
    figures: Any = program.bundle.manifest.settings["from_model"]
    assert figures.pop("inputs") == 6 and figures.pop("own_precision") is None
    assert figures.pop("packed_inputs") == program.batch
    assert all(far < 1e-6 for far in figures.values()) and len(figures) == 4
    kept = kept_of(program.bundle)
    assert kept is not None
    with torch.no_grad():
        wanted = model.answer(torch.from_numpy(kept.inputs["x"])).numpy()
    np.testing.assert_allclose(kept.answers["output"], wanted, atol=1e-6)
    assert all(any((row == one).all() for one in X) for row in kept.inputs["x"])
    found = program.evaluate(X[:4], encrypted=1).module
    assert found is not None and found.pop("inputs") == 6
    assert found.pop("ciphertexts_inputs") == program.batch
    assert set(found) == {"functions", "polynomials", "ciphertexts"}
    assert all(far is not None and far < 1e-6 for far in found.values())


def test_the_owner_keeps_the_answers(tmp_path: Path) -> None:
    model = Base()
    model.forward = model.answer  # type: ignore[method-assign]
    program = compiled(model)
    place = program.folder / KEPT
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    for part in ("client", "server"):
        program.save(tmp_path / part, part=part)  # type: ignore[arg-type]
        assert not (tmp_path / part / OWNER).exists()
        assert kept_of(atlasc.load(tmp_path / part).bundle) is None
    content = place.read_bytes()
    place.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(AtlasError, match="was changed after the bundle was compiled"):
        kept_of(program.bundle)
    place.unlink()
    assert kept_of(program.bundle) is None and program.evaluate(X[:4]).module is None
    without = compiled(model, keep_answers=False)
    assert not (without.folder / OWNER).exists()


@pytest.mark.parametrize("tokens", [8, 24])
def test_a_table_that_the_length_switches(tokens: int) -> None:
    """Phi-3 switches the frequencies of positions by the length of a text with its padding."""
    longrope = {
        "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4, "original_max_position_embeddings": 16, "factor": 4.0,
    }  # fmt: skip
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.Phi3Config(
            vocab_size=60, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
            original_max_position_embeddings=16, pad_token_id=0, rope_parameters=longrope,
        )
    )  # fmt: skip
    with torch.no_grad():  # so that attention depends on positions
        for name, weight in model.named_parameters():
            weight *= 20 if "qkv" in name else 1
    loaded = model_of(model)
    lengths = np.arange(8)[:, None] + tokens - 7
    mask = (np.arange(tokens) < np.minimum(lengths, tokens // 2 + 1)).astype(np.int64)
    ids = np.random.default_rng(0).integers(3, 60, (8, tokens)) * mask
    inputs = Inputs({"input_ids": ids, "attention_mask": mask}, ("text",) * 8)
    traced, told = trace_model(loaded, 1, tokens, inputs), dict[str, str]()
    assert all(type(one) is torch.Tensor for one in model.buffers())  # none that torch.export made
    asked = ask(loaded, traced, inputs, told.setdefault)
    assert asked is not None and asked.traced < 1e-4
    # A short text alone has other frequencies than in a window of more than 16 tokens.
    said = [what for what in told if "otherwise when padding follows it" in what]
    assert len(said) == (tokens == 24)


def test_padding_that_changes_answers_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text model without a mask reads its padding. It has one thread, but not by torch's own
    setting, after which the threads of MKL follow no limit.
    """
    counted = set[int]()
    monkeypatch.setattr(torch, "set_num_threads", lambda count: counted.add(-count))

    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.table, self.head = nn.Embedding(40, 8), nn.Linear(8, 3)

        def forward(self, input_ids):
            if not torch.compiler.is_exporting():
                counted.add(torch.get_num_threads())
            return self.head(torch.tanh(self.table(input_ids)).mean(1))

    ids = np.random.default_rng(0).integers(1, 40, (8, 6))
    mask = (np.arange(6) < np.arange(3, 11)[:, None]).astype(np.int64)
    inputs = Inputs({"input_ids": ids * mask, "attention_mask": mask}, ("text",) * 8)
    loaded, told = model_of(Reads().eval()), dict[str, str]()
    asked = ask(loaded, trace_model(loaded, 1, 6, inputs), inputs, told.setdefault)
    assert asked is not None
    assert counted == {1}
    assert [what for what in told if "otherwise when padding follows it" in what]


@pytest.mark.parametrize("batch", [1, 4])
def test_padding_of_a_module_of_fixed_length_is_said_to_be_unknown(batch: int) -> None:
    """It cannot be asked without padding; one of several texts at once neither."""

    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.table, self.head = nn.Embedding(40, 8), nn.Linear(48, 3)

        def forward(self, input_ids):
            return self.head(self.table(input_ids).reshape(batch, 48))

    ids = np.random.default_rng(0).integers(1, 40, (8, 6))
    mask = (np.arange(6) < np.arange(3, 11)[:, None]).astype(np.int64)
    inputs = Inputs({"input_ids": ids * mask, "attention_mask": mask}, ("text",) * 8)
    loaded, told = model_of(Fixed().eval()), dict[str, str]()
    assert ask(loaded, trace_model(loaded, batch, 6, inputs), inputs, told.setdefault) is not None
    said = told["whether padding changes the module's answers is unknown"]
    assert "takes texts of 6 tokens, and not text without padding, of 3 tokens" in said


def test_a_module_in_16_bits_is_also_asked_in_them() -> None:
    model = Base().to(torch.bfloat16)
    model.forward = model.answer  # type: ignore[method-assign]
    figures: Any = compiled(model).bundle.manifest.settings["from_model"]
    assert 1e-5 < figures["own_precision"] < 0.05 and figures["traced"] < 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_branch_on_the_type_is_refused(dtype: torch.dtype) -> None:
    """In float32, as a program computes, the module is another one."""

    class Typed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.layer(x)
            return self.head(h * (2.0 if h.dtype == torch.float32 else 1.0))

    with pytest.raises(AtlasError, match="otherwise in its own precision") as caught:
        atlasc.compile(Typed().to(dtype), {"x": X}, recipe="is", target="sim")
    assert "test_oracle.py" in str(caught.value.where) and "model.float()" in caught.value.remedy
