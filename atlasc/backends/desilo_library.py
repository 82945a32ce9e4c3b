"""The one place that imports desilofhe: present, of the right version, one engine per parameters.

This work uses the DESILO FHE library developed by DESILO Inc. (https://desilo.ai). Its licence
allows non-commercial use only, so it is an optional extra and is imported only when asked for.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from functools import lru_cache
from typing import Any

from atlasc.backends.desilo_parameters import DesiloParameters
from atlasc.ir.errors import AtlasError

REQUIRED_VERSION = "1.17.0"
_DISTRIBUTIONS = ("desilofhe", "desilofhe-cu130")
_REMEDY = 'pip install "atlasc[desilo]"'


def installed_version() -> str | None:
    """The version of desilofhe that is installed, in any of its builds; None without one."""
    for name in _DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def load_library() -> Any:
    """The module ``desilofhe``.

    Raises:
        AtlasError: it is not installed, of another version, or does not load on this machine.
    """
    version = installed_version()
    if version is None:
        raise AtlasError(
            "the target desilo needs the library desilofhe, which is not installed",
            why=f"version {REQUIRED_VERSION} is required",
            remedy=_REMEDY,
        )
    if version != REQUIRED_VERSION:
        raise AtlasError(
            f"desilofhe {version} is installed, but version {REQUIRED_VERSION} is required",
            why="other versions have other parameters, and 2.0.0 evaluates polynomials wrongly",
            remedy=_REMEDY,
        )
    try:
        return importlib.import_module("desilofhe")
    except ImportError as error:
        raise AtlasError(
            "desilofhe is installed but does not load", why=str(error), remedy=_REMEDY
        ) from error


@lru_cache(maxsize=4)
def library_engine(parameters: DesiloParameters) -> Any:
    """The library's engine for ``parameters`` on the CPU, on all cores; made once.

    It holds tables only, no keys: sharing it is safe.

    Raises:
        AtlasError: see :func:`load_library`; or the library's levels or slots are not the assumed
            ones.
    """
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    engine = load_library().Engine(
        mode="parallel", thread_count=threads, **parameters.library_arguments()
    )
    unused = 0 if parameters.bootstrap else 1
    if (engine.slot_count, engine.max_level - unused) != (parameters.slots, parameters.max_level):
        raise AtlasError(
            "desilofhe does not have the parameters that were assumed",
            why=f"{engine.slot_count} slots and {engine.max_level} levels instead of "
            f"{parameters.slots} and {parameters.max_level + unused}",
            remedy=_REMEDY,
        )
    return engine
