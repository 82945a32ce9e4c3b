"""Activations, in all forms in which models write them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from atlasc.ir.scalar_functions import ACTIVATIONS
from atlasc.passes.frontend.forms import Match, first_match
from atlasc.passes.frontend.graph import Node

if TYPE_CHECKING:
    from atlasc.passes.frontend.import_export import Importer

FORMS = {form: name for name, function in ACTIVATIONS.items() for form in function.forms}


def activation(importer: Importer, node: Node) -> Match | None:
    """An expression with the form of an activation: the op of that activation."""
    for form, name in FORMS.items():
        if (found := first_match(form, node)) is not None:
            x = found["x"]
            return Match((x,), partial(importer.add, node, f"nn.{name}", [x]))
    return None
