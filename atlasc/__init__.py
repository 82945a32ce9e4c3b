"""A compiler for private Transformer inference under the CKKS homomorphic encryption scheme.

::

    import atlasc

    program = atlasc.compile(model, data=texts, tokenizer=tokenizer, sequence_length=64,
                             batch=2)
    program.inspect()                # what it costs
    program.check(texts)             # whether answers will agree with the model's
    program.evaluate("labelled.jsonl")  # accuracy, beside that of the model in the clear
    program.run(texts[:2])           # encrypt, execute and decrypt in this process
    program.save("build/sentiment")  # for atlasc.load, and for the command line

    atlasc.keygen(program, "keys")
    client, server = atlasc.Client(program, "keys"), atlasc.Server(program, "keys")
    client.decrypt(server.execute(client.encrypt(texts[:2])))

    with atlasc.connect("https://host:8000") as service:  # one that ``atlasc serve`` runs
        service.query(texts).labels

All errors that a caller can mend are :class:`AtlasError`. Nothing is printed but a bar of progress,
on a terminal or in a notebook. A file or folder appears whole or not at all. Importing the package
imports no other library; each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from atlasc.version import __version__

if TYPE_CHECKING:
    from atlasc.api.answers import ProgramAnswers
    from atlasc.api.program import Program, compile, load
    from atlasc.api.roles import Client, Query, Server, keygen
    from atlasc.client.verdict import Verdict
    from atlasc.compilation.options import CompileOptions
    from atlasc.evaluation.evaluate import Evaluation
    from atlasc.ir.errors import AtlasError
    from atlasc.remote.connection import connect

__all__ = [
    "AtlasError", "Client", "CompileOptions", "Evaluation", "Program", "ProgramAnswers", "Query",
    "Server", "Verdict", "__version__", "compile", "connect", "keygen", "load",
]  # fmt: skip

_PLACES = {
    **dict.fromkeys(("Program", "compile", "load"), "atlasc.api.program"),
    "ProgramAnswers": "atlasc.api.answers",
    **dict.fromkeys(("Client", "Query", "Server", "keygen"), "atlasc.api.roles"),
    "CompileOptions": "atlasc.compilation.options",
    "Evaluation": "atlasc.evaluation.evaluate",
    "AtlasError": "atlasc.ir.errors",
    "Verdict": "atlasc.client.verdict",
    "connect": "atlasc.remote.connection",
}
"""Where each public name is defined."""


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'atlasc' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
