"""Which argument of a module is the mask of padding: the one that hides what stands there.

The module is called with some tokens in the middle changed. Under the right mask, in the right
form, the answer stays the same; without a mask it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from atlasc.compilation.oracle.running import as_tensors, separate
from atlasc.ir.errors import AtlasError
from atlasc.loading import IDS, MASK, POSITIONS, SEGMENTS
from atlasc.loading.data import inputs_of
from atlasc.loading.inputs import Inputs
from atlasc.loading.loaded_model import LoadedModel
from atlasc.loading.mask_argument import FORMS, Form, forms_of, with_public_mask
from atlasc.loading.model_files.wrappers import named_inputs
from atlasc.passes.frontend.rules.outputs import named_leaves
from atlasc.progress import Note, quiet

KNOWN = (IDS, SEGMENTS, POSITIONS)
NAMES = ("mask", "pad")
"""Parts of the names of arguments that may be masks, where there are several arguments."""
TOLERANCE = 1e-4
"""Share of the greatest number of an answer by which it may move under the right mask."""


def with_its_mask(
    model: LoadedModel, data: object, length: int | None, long: str, note: Note = quiet
) -> tuple[LoadedModel, Inputs]:
    """A model that takes ``attention_mask``, if an argument of its module is a mask of padding
    under another name or in another form, and its inputs.

    Raises:
        AtlasError: as ``inputs_of``.
    """
    if not _may_have_one(model):
        return model, inputs_of(data, model, length, long)
    argument = _candidate(model)
    if argument is None:
        inputs = inputs_of(data, model, length, long)
        argument = _truths(model, inputs)
    if argument is None:
        return model, inputs
    if argument == MASK:
        with suppress(AtlasError):  # said again, if no form fits
            inputs = inputs_of(data, model, length, long)
            if _hides(separate(model.module), MASK, FORMS[0], inputs.arrays) is not False:
                return model, inputs
    if (found := _masked(model, argument, data, length, long)) is not None:
        own = "" if argument == MASK else f"{argument} as the module takes it, or "
        note(
            f"the argument {argument} is the mask of padding, and the server sees it",
            "  why: answers do not depend on tokens that it drops\n"
            f"  what to do: clients of the program give {own}{MASK}, which is 1 for each token; "
            "texts have it by themselves",
        )
        return found
    return model, inputs_of(data, model, length, long)


def _masked(
    model: LoadedModel, argument: str, data: object, length: int | None, long: str
) -> tuple[LoadedModel, Inputs] | None:
    """The model and its inputs, if the argument hides tokens; None if it does not."""
    seen: Any = with_public_mask(model.module, argument, None)
    try:
        inputs = inputs_of(data, replace(model, module=seen), length, long)
    except AtlasError:
        return None  # said again, of the module's own inputs
    given = seen.given.array
    one = named_inputs(model.module)[argument]
    padded = MASK in inputs.arrays and not inputs.arrays[MASK].all()
    if given is None and one.default is not one.empty and not padded:
        return None
    copied = separate(model.module)
    for form in FORMS if given is None else forms_of(np.asarray(given)):
        if _hides(copied, argument, form, inputs.arrays):
            module = with_public_mask(model.module, argument, form)
            own = None if model.given is None else with_public_mask(model.given, argument, form)
            found = replace(model, module=module, given=own)
            return found, inputs if given is None else inputs_of(data, found, length, long)
    return None


def _may_have_one(model: LoadedModel) -> bool:
    """Whether the inputs of a model are not known beforehand, and it can be asked."""
    own = model.kind == "module" and getattr(model.module, "main_input_name", None) is None
    asked = not any(one.is_meta for one in model.module.parameters())
    return own and asked and model.exported is None


def _truths(model: LoadedModel, inputs: Inputs) -> str | None:
    """The only argument with a truth for each token of the first one; None if there is none."""
    first = inputs.arrays[model.input_names[0]]
    likely = [
        name
        for name, one in inputs.arrays.items()
        if one.dtype == bool and one.shape == first.shape[:2] and name not in KNOWN
    ]
    return likely[0] if len(likely) == 1 else None


def _candidate(model: LoadedModel) -> str | None:
    """The argument that may be a mask, by its name or because there is no other."""
    inputs = list(named_inputs(model.module).values())
    others = [one for one in inputs[1:] if one.name not in KNOWN]
    if any(one.name == MASK for one in others):
        return MASK
    required = [one.name for one in others if one.default is one.empty]
    optional = [one.name for one in others if one.default is None]
    for names in (required, optional):
        likely = [name for name in names if any(part in name for part in NAMES)]
        if len(likely) == 1 or (len(names) == 1 and names is required):
            return likely[0] if likely else names[0]
    return None


def _hides(module: Any, argument: str, form: Form, arrays: Mapping[str, np.ndarray]) -> bool | None:
    """Whether answers do not depend on tokens that a mask of this form drops; None if they do not
    depend on them anyway, or this cannot be asked.
    """
    names = [
        name for name in named_inputs(module) if name in arrays and name not in (argument, MASK)
    ]
    if not names or arrays[names[0]].ndim < 2 or arrays[names[0]].shape[1] < 3:
        return None
    rows = [*range(min(2, len(arrays[names[0]])))]
    some = {name: arrays[name][rows] for name in names}
    main, tokens = some[names[0]], some[names[0]].shape[1]
    changed = main.copy()
    other = arrays[names[0]].reshape(-1)[::-1] if main.dtype.kind in "iu" else -0.5 * main - 1
    changed[:, 1:-1] = np.resize(other, main.shape)[:, 1:-1]
    if (changed == main).all():
        return None
    every = np.ones((len(rows), tokens), np.int64)
    dropped = every.copy()
    dropped[:, 1:-1] = 0

    def moves(mask: np.ndarray) -> bool | None:
        ours, theirs = (
            _answers(module, {**some, names[0]: x}, argument, form, mask) for x in (main, changed)
        )
        if ours is None or theirs is None:
            return None
        pairs = [(_kept(y, tokens), _kept(ours[name], tokens)) for name, y in theirs.items()]
        if not all(np.isfinite(y).all() and np.isfinite(z).all() for y, z in pairs):
            return None
        return any(
            np.abs(y - z).max(initial=0) > TOLERANCE * np.abs(z).max(initial=0) for y, z in pairs
        )

    masked = moves(dropped)
    if masked is None:
        return False
    return not masked if moves(every) else None


def _kept(y: np.ndarray, tokens: int) -> np.ndarray:
    """An answer for the tokens that are not dropped: the first and the last."""
    return y[:, [0, -1]] if y.ndim > 2 and y.shape[1] == tokens else y


def _answers(
    module: Any, arrays: Mapping[str, np.ndarray], argument: str, form: Form, mask: np.ndarray
) -> dict[str, np.ndarray] | None:
    """What a copy of a module answers under a mask; None if it fails."""
    import torch

    asked = with_public_mask(module, argument, form)
    try:
        tensors = as_tensors({**arrays, MASK: mask}, module)
        with torch.no_grad():
            leaves = named_leaves(asked(**tensors))
    except Exception:  # the module does not take a mask of this form
        return None
    return {n: y.double().numpy() for n, y in leaves.items() if isinstance(y, torch.Tensor)}
