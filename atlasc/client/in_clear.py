"""What leaves a client in the clear: a closed list, which no bundle can extend.

A bundle comes from whoever runs the server, and that may be somebody hostile. It says which inputs
are embedded and encrypted, and which the server sees. What it may say is therefore decided by what
an input is: the mask of a text, and the place of a token of it. Every other input is private. The
runtime library has the same list (``require_closed`` of ``atlasc/client_data.hpp``) and looks at
the numbers: zeros and ones, and a place is a single one.
"""

from __future__ import annotations

from atlasc.client.checks import MASK
from atlasc.ir.errors import AtlasError, printable
from atlasc.ir.module import Module
from atlasc.ir.ops.tensors import POSITION
from atlasc.runtime.interface import Interface

PUBLIC = {
    MASK: "which places of a text are tokens, and so its length",
    POSITION: "the place of a token",
}
"""Inputs that may leave in the clear, and what they tell."""
TEXT_RANKS = (2, 3)
"""Ranks of texts: ids [batch, tokens], or vectors [batch, tokens, features]."""


def require_closed(embed: Module, interface: Interface) -> None:
    """Refuse a program whose public inputs are not the mask of a text and the place of a token.

    Args:
        embed: the client's module, from raw inputs to what is encrypted.
        interface: the inputs and outputs of the server's program.

    Raises:
        AtlasError: another input is public, or one is embedded and public; or the embedding is not
            the module of a client.
    """
    if embed.level != "nn":
        raise AtlasError(
            "the program has no client's part",
            why=f"its embedding is a module of {embed.level}",
            remedy="do not use this bundle, and ask whoever made it",
        )
    public = {one.name: list(one.shape) for one in interface.publics}
    private = [op for op in embed.inputs if op.attributes["side"] != "public"]
    texts = [list(op.attributes["shape"]) for op in private]
    texts = [shape[:2] for shape in texts if len(shape) in TEXT_RANKS]
    both = [op.attributes["name"] for op in private if op.attributes["name"] in public]
    why = ""
    for name, shape in public.items():
        what = f"it says that the server sees {printable(name)} {shape}"
        if name not in PUBLIC:
            why = what
        elif name in both:
            why = f"{what}, and that the client embeds it"
        elif shape not in texts or shape != public.get(MASK):
            why = f"{what}, which is not of the places of a text"
    if why:
        raise _refusal(why)


def require_listed(interface: Interface) -> None:
    """As :func:`require_closed`, of a program without the client's embedding, which an emitted
    client leaves to ``atlasc embed``. The runtime library looks at the same.

    Raises:
        AtlasError: another input is public, or one is encrypted and public.
    """
    encrypted = [one.name for one in interface.inputs]
    public = {one.name: list(one.shape) for one in interface.publics}
    for name, shape in public.items():
        what = f"it says that the server sees {printable(name)} {shape}"
        if name not in PUBLIC:
            raise _refusal(what)
        if name in encrypted:
            raise _refusal(f"{what}, and that it is encrypted")
        if len(shape) != 2 or shape != public.get(MASK):
            raise _refusal(f"{what}, which is not of the places of a text")


def _refusal(why: str) -> AtlasError:
    return AtlasError(
        "the program asks for an input in the clear",
        why=f"{why}; only the mask of a text ({MASK}) and the place of a token ({POSITION}) may "
        "leave so",
        remedy="do not use this bundle, and ask whoever made it",
    )


def in_clear(interface: Interface) -> dict[str, str]:
    """Each input that leaves in the clear, and what it tells."""
    other = "an input that must not leave so"
    return {
        f"{one.name} {list(one.shape)}": PUBLIC.get(one.name, other) for one in interface.publics
    }


def told(interface: Interface) -> str:
    """The same as a sentence, for whoever makes keys or meets a service."""
    known = [f"{name}: {what}" for name, what in in_clear(interface).items()]
    return "the server sees in the clear: " + "; ".join([*known, "the number and time of inputs"])
