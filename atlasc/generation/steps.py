"""What client and server of a text agree on: the names of its steps, and their public inputs."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from atlasc.bundle.folder import Bundle
from atlasc.files import locked
from atlasc.ir.errors import AtlasError
from atlasc.passes.generation.token_program import POSITION


def step_of(bundle: Bundle) -> Bundle:
    """The step of a bundle, which may be given itself.

    Raises:
        AtlasError: the bundle has no step; it is not the one that the manifest lists.
    """
    alone = POSITION in publics_of(bundle)
    return bundle if alone and not bundle.has_step else bundle.step


def publics_of(bundle: Bundle) -> dict[str, list[int]]:
    """Name of a public input -> its shape."""
    ops = (op for op in bundle.interface.ops if op.name == "ckks.public_input")
    return {op.attributes["name"]: op.attributes["shape"] for op in ops}


def window_of(step: Bundle) -> int:
    """The tokens that a step was compiled for.

    Raises:
        AtlasError: it does not compute one answer for one token after others.
    """
    publics = publics_of(step)
    outputs = [op.attributes["name"] for op in step.interface.outputs]
    if len(publics) != 2 or POSITION not in publics or len(outputs) != 1:
        raise AtlasError(
            f"{step.folder} cannot generate text",
            why=f"its public inputs are {', '.join(publics)}, its outputs {', '.join(outputs)}",
            remedy="compile a model of input_ids and attention_mask, with logits alone",
        )
    return publics[POSITION][1]


def public_at(step: Bundle, place: int) -> dict[str, np.ndarray]:
    """The public inputs of the step of a token: its position, and the mask of those up to it."""
    places = np.arange(window_of(step))[None]
    (mask,) = set(publics_of(step)) - {POSITION}
    return {
        POSITION: (places == place).astype(np.int64),
        mask: (places <= place).astype(np.int64),
    }


def public_tokens(step: Bundle) -> int:
    """Tokens of the public prefix, whose keys and values every text begins with.

    The client's part has these tokens, the server's their keys and values.
    """
    if step.role != "server":
        return 0 if step.public_prefix is None else len(step.public_prefix.ids)
    program = step.program
    begun = (op for op in program.inputs if "prefix" in op.attributes)
    return max((program.symbols[op.attributes["prefix"].name].shape[2] for op in begun), default=0)


def name_of(session: str, number: int) -> str:
    """The name of a query of a session, which are numbered from 0.

    The first one is named after the session, 32 random hexadecimal digits, and so the server learns
    the session. Names of later ones follow from it, so that the server knows whether a query is of
    the same session.
    """
    if number == 0:
        return session
    return hashlib.sha256(f"{session}:{number}".encode()).hexdigest()[: len(session)]


@contextmanager
def alone(folder: Path, what: str) -> Iterator[None]:
    """A folder, locked against other processes."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder, fcntl.LOCK_NB))
        except OSError as error:
            busy = isinstance(error, BlockingIOError)
            raise AtlasError(
                f"the {what} {folder} cannot be opened",
                why="another process works on it" if busy else str(error.strerror),
                remedy="wait until it ends, or give another folder",
            ) from None
        yield
