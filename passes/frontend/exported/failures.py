"""Why torch.export cannot trace a model, in the words of whoever wrote the model."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING

from atlasc.ir.errors import AtlasError, first_line
from atlasc.passes.frontend.exported.graph import raised_at
from atlasc.passes.frontend.exported.locations import forward_of
from atlasc.passes.frontend.exported.rope import dynamic_rope

if TYPE_CHECKING:
    import torch

_IS_TORCH = re.compile(r"torch\b")


@contextmanager
def without_dumps() -> Iterator[None]:
    """Keep to itself what torch logs and prints of a graph that it cannot trace: hundreds of lines,
    of which `untraceable` says the reason.
    """
    loggers = [logging.getLogger(n) for n in logging.root.manager.loggerDict if _IS_TORCH.match(n)]
    handlers = {handler for logger in loggers for handler in logger.handlers}
    for handler in handlers:
        handler.addFilter(_nothing)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(_nothing)


def _nothing(record: logging.LogRecord) -> bool:
    return False


def untraceable(module: torch.nn.Module, error: Exception, taken: Iterable[str]) -> AtlasError:
    """What to say when torch.export failed; its own text may have hundreds of lines.

    Args:
        module: the model.
        error: what torch.export raised.
        taken: names of the model's arguments.
    """
    if "DataDependent" in type(error).__name__ or "data-dependent" in str(error):
        why = "the code decides by values of tensors there, which are not known when it is traced"
        remedy = "compute both cases and mix them with weights, or decide by shapes and settings"
        if (positions := dynamic_rope(getattr(module, "config", None))) is not None:
            why = (
                "the rotary embedding (rope_type dynamic in the config) changes its frequencies "
                "with the length of the longest text that the model has seen"
            )
            remedy = (
                f"compile for up to {positions} tokens (max_position_embeddings, "
                f"--sequence-length {positions}) a model that has read no longer text: so far its "
                "frequencies stay as they are"
            )
    elif ".numpy()" in str(error):
        why = "numpy sees no tensor that torch.export traces"
        remedy = "compute with torch there, or before, and give the result as an input"
    elif "fake tensor" in str(error):
        why = "it uses .data of a parameter, or a tensor that an earlier call kept"
        remedy = (
            "write a parameter under torch.no_grad(), and in training alone; take a tensor of "
            "an earlier call as an input of forward"
        )
    else:
        why = f"{type(error).__name__}: {first_line(error)}"
        remedy = f"check the names and shapes of the inputs (the model takes {', '.join(taken)})"
    return AtlasError(
        f"torch.export cannot trace {type(module).__name__}",
        where=raised_at(error) or forward_of(module),
        why=why,
        remedy=remedy,
    )
