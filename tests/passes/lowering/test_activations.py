"""Every activation, from a PyTorch module to the packed program on the simulation engine."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from packed import expanded, folded, run_packed
from torch_activations import TORCH_ACTIVATIONS

from atlasc.calibration.calibrate import calibrate
from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.ir.scalar_functions import ACTIVATIONS
from atlasc.passes.approximation.approximate import apply_recipe, recipe_approximations
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.frontend.canonicalise import Canonicalise
from atlasc.passes.frontend.trace import trace
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.packing.geometry import least_slots
from atlasc.passes.pipeline import client_module
from atlasc.program.costs import critical_path
from atlasc.simulation.simulate import PolynomialSimulator
from atlasc.simulation.torch_simulator import TorchSimulator
from atlasc.targets.sim import SimEngine

X = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)


def traced(activation: torch.nn.Module) -> tuple[Module, np.ndarray]:
    """An MLP with the activation as an nn module, and what PyTorch makes of X."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), activation, torch.nn.Linear(6, 4)).eval()
    with torch.no_grad():
        return run_passes(trace(model, {"input": X}, name="mlp"), [Canonicalise()]), model(
            torch.tensor(X)
        ).numpy()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_compiled(name: str) -> None:
    module, wanted = traced(TORCH_ACTIVATIONS[name])
    assert f"nn.{name}" in [op.name for op in module.ops]
    inputs = {"input": X}
    assert np.abs(interpret(module, inputs)["output"] - wanted).max() < 1e-5

    approximated = apply_recipe(module, "is", calibrate(module, inputs))
    simulator = PolynomialSimulator(approximated, np.float64, threads=1)
    simulated = simulator.run(inputs).outputs["output"]
    assert np.abs(simulated - wanted).max() < 1e-3

    inputs |= interpret(client_module(module), inputs)
    poly = folded(expanded(approximated), inputs)
    packed = run_passes(poly, [Pack(least_slots(poly))])
    engine = SimEngine(least_slots(poly), critical_path(packed).total)
    found = run_packed(packed, inputs, engine)["output"]
    assert np.abs(found - simulated).max() < 1e-6


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_simulator_on_torch_knows_an_activation(name: str) -> None:
    module, wanted = traced(TORCH_ACTIVATIONS[name])
    simulator = TorchSimulator(module, "cpu")
    uploaded = simulator.prepare({"input": X})
    assert np.abs(simulator.cleartext(uploaded)["output"] - wanted).max() < 1e-5
    chosen = recipe_approximations(module, "is", calibrate(module, {"input": X}))
    assert np.abs(simulator.run(uploaded, chosen).outputs["output"] - wanted).max() < 1e-3


@pytest.mark.parametrize("recipe", ["nexus", "thor"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_published_recipe_approximates_every_activation(name: str, recipe: str) -> None:
    module, wanted = traced(TORCH_ACTIVATIONS[name])
    approximated = apply_recipe(module, recipe, calibrate(module, {"input": X}))
    simulated = PolynomialSimulator(approximated, np.float64, threads=1).run({"input": X})
    assert np.abs(simulated.outputs["output"] - wanted).max() < 5e-2


FORMS = [(name, form) for name, entry in ACTIVATIONS.items() for form in entry.forms]


class Written(torch.nn.Module):
    """A form of the table as a model could write it."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        code = compile(self.form, "form", "eval")
        names = {name: getattr(torch.ops.aten, name) for name in code.co_names if name != "x"}
        found = eval(code, {**names, "x": x})  # the text comes from our own table
        return torch.nn.functional.linear(found, torch.ones(4, 4))  # the client does not do it


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_every_form_of_the_table_is_recognised(name: str, form: str) -> None:
    module = trace(Written(form), {"x": X}, name="written")
    assert [op.name for op in module.ops][2:] == [f"nn.{name}", "nn.linear", "nn.output"]


def test_other_arguments_of_an_activation_are_refused() -> None:
    with pytest.raises(AtlasError, match="it becomes linear at 5"):
        traced(torch.nn.Softplus(1, 5))
