"""Client and server apart, as they are in earnest: each has its part of a bundle and its own keys.

The client makes the keys, encrypts and decrypts; the server executes. What travels is the server's
keys once, then a query and an answer each time (:mod:`atlasc.bundle.ciphertext_files`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from atlasc.bundle import ciphertext_files
from atlasc.bundle.ciphertext_files import Ciphertexts
from atlasc.bundle.folder import Bundle, Role
from atlasc.bundle.ledger import Ledger
from atlasc.client.answers import Answers
from atlasc.files import new_folder, write_text
from atlasc.ir.errors import AtlasError
from atlasc.passes.lowering.rotation_keys import key_plan
from atlasc.run.session import (
    Pace,
    Progress,
    decrypt_all,
    encrypt_all,
    no_progress,
)
from atlasc.run.session import execute as execute_program
from atlasc.run.timing import Timing, timing_place
from atlasc.targets import find_target
from atlasc.targets.base import RoleEngine, Target
from atlasc.targets.key_folders import INDEX


def check_target(bundle: Bundle, target: str | None = None) -> Target:
    """The target that the roles work on.

    Args:
        bundle: the compiled model.
        target: name of another one than the bundle's own.

    Raises:
        AtlasError: it is unknown, or its library is missing.
    """
    found = find_target(target or bundle.target)
    found.check()
    return found


def generate_keys(
    bundle: Bundle, target: Target, folder: Path, progress: Progress = no_progress
) -> None:
    """Make the keys of a program: ``folder/client`` and ``folder/server``, both or none.

    Needs the client's part of the bundle alone.

    Raises:
        AtlasError: the folder exists; too little memory or disk space, said before starting.
    """
    plan = key_plan(bundle.client.interface)
    with new_folder(folder, private=True) as draft:
        places = draft / "client", draft / "server"
        target.generate_keys(bundle.parameters, plan, *places, progress)


def encrypt(
    bundle: Bundle,
    engine: RoleEngine,
    ledger: Ledger,
    arrays: Mapping[str, np.ndarray],
    query: Path,
    *,
    unchecked: bool = False,
) -> None:
    """Encrypt at most a batch of raw inputs into a new folder.

    Args:
        bundle: the client's part is enough.
        engine: a client's.
        ledger: of its keys; the query is noted there.
        arrays: raw inputs by name.
        query: the new folder.
        unchecked: encrypt inputs that are far larger than those of calibration.

    Raises:
        AtlasError: of the inputs; the folder exists.
    """
    packed = bundle.client.query(arrays, unchecked=unchecked)
    name = ciphertext_files.new_query()
    content = Ciphertexts(encrypt_all(engine, packed), packed.count, name, packed.public)
    ledger.made(name, bundle.identity, packed.count)
    ciphertext_files.save(query, "query", bundle, engine, content)


def execute(
    bundle: Bundle,
    target: Target,
    engine: RoleEngine,
    query: Path,
    answer: Path,
    progress: Progress = no_progress,
) -> Timing | None:
    """Run the program on a query; tells how long each op took, also in a file beside the answer.

    Args:
        bundle: the server's part is enough.
        target: of the engine; one that encrypts nothing is not timed.
        engine: a server's.
        query: what :func:`encrypt` wrote.
        answer: the new folder; ``timing_place`` names the file.
        progress: called before each op with predicted hundredths.

    Raises:
        AtlasError: a query of another program or of other keys; the answer exists.
    """
    content = ciphertext_files.load(query, "query", bundle, engine)
    pace = Pace.of(bundle, target.name, 1, progress)
    results = execute_program(engine, bundle.program, content.values, content.public, pace)
    pace.finish()
    found = Ciphertexts(results, content.count, content.query, {})
    ciphertext_files.save(answer, "answer", bundle, engine, found)
    timing = pace.timing(bundle, target.name, 1)
    if timing is not None:
        write_text(timing_place(answer), timing.text(bundle))
    return timing


def decrypt(bundle: Bundle, engine: RoleEngine, ledger: Ledger, answer: Path) -> Answers:
    """Answers, and which of them are none; the client's part and engine are enough.

    Raises:
        AtlasError: the answer of another program, of other keys, or to another query; or a second
            answer to a query.
    """
    named = ciphertext_files.check(answer, "answer", bundle).named()
    ledger.check(named)
    content = ciphertext_files.load(answer, "answer", bundle, engine)
    slots = {name: decrypt_all(engine, values) for name, values in content.values.items()}
    ledger.took(named)
    return bundle.client.answers(slots, content.count)


def client_engine(bundle: Bundle, target: Target, keys: Path) -> RoleEngine:
    """An engine that encrypts and decrypts."""
    return target.client_engine(key_folder(keys, "client"), bundle.parameters)


def ledger_of(keys: Path) -> Ledger:
    """What was done with a client's keys."""
    return Ledger(key_folder(keys, "client"))


def server_engine(bundle: Bundle, target: Target, keys: Path) -> RoleEngine:
    """An engine that executes the program; it has no secret key."""
    plan = key_plan(bundle.program)
    return target.server_engine(key_folder(keys, "server"), bundle.parameters, plan)


def key_folder(keys: Path, role: Role) -> Path:
    """The folder of a role: the one given, or the one of that name in it."""
    if not keys.is_dir():
        raise AtlasError(f"keys {keys} not found", remedy="make them with atlasc keygen")
    whole = not (keys / INDEX).exists() and (keys / role).is_dir()
    return keys / role if whole else keys
