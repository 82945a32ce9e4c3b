"""How much of a key's budget of shared answers is spent: a file beside the secret key.

An answer that is shared at kappa bits as one of tau spends 2^-kappa / tau, in proportion to the
divergence that :mod:`atlasc.sharing` allows; all of a key's together may spend 2^-kappa.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

from atlasc.ir.errors import AtlasError

FILE = "shared.jsonl"


def spend(folder: Path, bits: int, shares: int) -> int:
    """Note that an answer is shared, before it is shown; tells how many were, this one included.

    Args:
        folder: the client's keys.
        bits: kappa.
        shares: tau.

    Raises:
        AtlasError: the budget is spent; the file is damaged or cannot be written.
    """
    path = folder / FILE
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags, 0o600), "r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            spent = [float(json.loads(line)["spent"]) for line in file]
            cost, limit = 2.0**-bits / shares, 2.0**-bits
            if not 0 <= sum(spent) <= limit * (1 + 1e-9) - cost:
                raise AtlasError(
                    "these keys have shared as many answers as they may",
                    where=str(path),
                    why=f"{len(spent)} answers spent their budget at {bits} bits: a further one "
                    "may tell something of the secret key",
                    remedy="make new keys with atlasc keygen, and say with --shares beforehand how "
                    "many answers they are to share",
                )
            file.write(json.dumps({"spent": cost, "bits": bits, "shares": shares}) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AtlasError(
            f"{path} is damaged or cannot be written",
            why=str(error),
            remedy="make new keys: without it nobody knows how many answers these shared",
        ) from None
    return len(spent) + 1
