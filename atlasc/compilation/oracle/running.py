"""Runs the user's own module, as the user would: eagerly, in evaluation mode, text by text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.loading import IDS, MASK
from atlasc.loading.loaded_model import LoadedModel
from atlasc.passes.frontend.exported.graph import holding
from atlasc.passes.frontend.exported.padding import without_padding
from atlasc.passes.frontend.rules.outputs import named_leaves

if TYPE_CHECKING:
    import torch

PLAIN = {"use_cache": False, "return_dict": True, "output_attentions": False}
"""What the config of a HuggingFace model says while it answers, as when it is traced."""
MOST_COPIED = 1 << 30
"""Bytes of parameters up to which they are copied too, before the module is run."""


@dataclass(frozen=True)
class Runner:
    """A copy of a module that can be called again and again.

    Attributes:
        module: the copy, which may change while it answers.
        model: the model that it is a copy of.
        epsilon: machine epsilon of the coarsest floats that it computes with; see `measured`.
    """

    module: torch.nn.Module
    model: LoadedModel
    epsilon: float = float(np.finfo(np.float32).eps)

    def __call__(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The answers to some inputs ``[inputs, ...]``, by name; what is no tensor is left out."""
        import torch

        given = {name: arrays[name] for name in inputs_of(self.model, arrays)}
        config = getattr(self.module, "config", None)
        nameless, padding = without_padding(config), {}
        if nameless is not None and {IDS, MASK} <= set(given):
            kept = given[MASK] > 0
            token = _unused(given[IDS][kept])
            padding, given[IDS] = {"pad_token_id": token}, np.where(kept, given[IDS], token)
        args, kwargs = self._arguments(as_tensors(given, self.module))
        with torch.no_grad(), holding(config, **PLAIN), holding(nameless, **padding):
            found = named_leaves(self.module(*args, **kwargs))
        return {
            name: leaf.detach().to("cpu", torch.float64).numpy()
            for name, leaf in found.items()
            if isinstance(leaf, torch.Tensor)
        }

    def _arguments(self, tensors: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        import torch

        program = self.model.exported
        if program is None:
            return (), tensors
        leaves = [tensors[str(name)] for name in program.graph_signature.user_inputs]
        found: tuple[Sequence[Any], Mapping[str, Any]]
        found = torch.utils._pytree.tree_unflatten(leaves, program.call_spec.in_spec)
        return found

    def measured(self, arrays: Mapping[str, np.ndarray]) -> Runner:
        """The runner, with the epsilon of the coarsest floats that it meets on some inputs."""
        from torch.utils._python_dispatch import TorchDispatchMode

        found = {self.epsilon}

        class Watch(TorchDispatchMode):
            def __torch_dispatch__(
                self, op: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                result = op(*args, **(kwargs or {}))
                if getattr(getattr(result, "dtype", None), "is_floating_point", False):
                    found.add(_epsilon(result))
                return result

        with Watch():
            self(arrays)
        return Runner(self.module, self.model, max(found))


def _unused(ids: np.ndarray) -> int:
    """The smallest id that is not among some."""
    return int(np.setdiff1d(np.arange(ids.size + 1), ids)[0])


def _epsilon(tensor: torch.Tensor) -> float:
    import torch

    return float(torch.finfo(tensor.dtype).eps)


def as_tensors(
    arrays: Mapping[str, np.ndarray], module: torch.nn.Module
) -> dict[str, torch.Tensor]:
    """Arrays as tensors for a module: integers of 64 bits, and floats of its own type."""
    import torch

    like = next(iter(module.parameters()), torch.zeros(0))
    floats = like.dtype if like.is_floating_point() else torch.float32
    found = {}
    for name, array in arrays.items():
        tensor = torch.from_numpy(np.array(array))
        kind = floats if tensor.is_floating_point() else torch.int64
        found[name] = tensor.to(like.device, kind)
    return found


def inputs_of(model: LoadedModel, arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Names of the arrays that the model takes."""
    return [name for name in (*model.input_names, *model.optional_names) if name in arrays]


def runner_of(model: LoadedModel) -> Runner | None:
    """A runner of a model's module; None for a model without weights."""
    tensors = [*model.module.parameters(), *model.module.buffers()]
    if any(tensor.is_meta for tensor in tensors):
        return None
    return Runner(separate(model.module), model)


def own_precision(model: LoadedModel) -> Runner | None:
    """A runner of the module that the user gave, where the model is a copy of it in float32."""
    given = model.given
    return None if given is None or given is model.module else Runner(separate(given), model)


def separate(module: torch.nn.Module) -> torch.nn.Module:
    """A copy of a module in evaluation mode, so that running it leaves the user's as it is.

    Large parameters are shared: those that the module would write were refused or named when it was
    traced.
    """
    parameters = list(module.parameters())
    large = sum(one.numel() * one.element_size() for one in parameters) > MOST_COPIED
    return deepcopy(module, {id(one): one for one in parameters} if large else {}).eval()
