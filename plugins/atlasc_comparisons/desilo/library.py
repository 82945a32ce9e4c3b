"""The one place that imports desilofhe: present, of the right version, one engine per parameters.

This work uses the DESILO FHE library developed by DESILO Inc. (https://desilo.ai). Its licence
allows non-commercial use only, so it is an optional extra and is imported only when asked for.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

from atlasc.ir.errors import AtlasError, explained
from atlasc.targets.machine import available_threads
from atlasc_comparisons.desilo.parameters import DesiloParameters

REQUIRED_VERSION = "1.17.0"
CPU_BUILD, CUDA_BUILD = "desilofhe", "desilofhe-cu130"
_REMEDY = 'pip install "atlasc-comparisons[desilo]"'


def installed_build() -> tuple[str | None, str | None]:
    """Distribution and version of the desilofhe that is installed; None, None without one.

    Both builds are one module of one name. Where both are installed, pip let the second one
    overwrite the first, and the one for CUDA is reported: its user wants a GPU.
    """
    for name in (CUDA_BUILD, CPU_BUILD):
        try:
            return name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None, None


def load_library() -> Any:
    """The module ``desilofhe``.

    Raises:
        AtlasError: it is not installed, of another version, or does not load on this machine.
    """
    _, version = installed_build()
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
    with explained("desilofhe is installed but does not load", remedy=_REMEDY):
        return importlib.import_module("desilofhe")


@lru_cache(maxsize=4)
def library_engine(parameters: DesiloParameters) -> Any:
    """The library's engine for ``parameters``; made once.

    It computes on all cores, or, with the build for CUDA, on the first GPU. It holds tables only,
    no keys: sharing it is safe.

    Raises:
        AtlasError: see :func:`load_library`; or the build for CUDA finds no GPU; or the library's
            levels or slots are not the assumed ones.
    """
    library = load_library()
    gpu = installed_build()[0] == CUDA_BUILD
    mode = {"mode": "gpu"} if gpu else {"mode": "parallel", "thread_count": available_threads()}
    p, bootstrap = parameters, {"use_bootstrap_to_14_levels": True}
    leveled = {"log_coeff_count": p.log_ring_degree, "special_prime_count": p.special_primes}
    what = f"{CUDA_BUILD} is installed, but computes on no GPU here"
    remedy = f"pip uninstall {CUDA_BUILD}, then {_REMEDY}, for this machine's processor"
    with explained(what, remedy=remedy) if gpu else nullcontext():
        engine = library.Engine(**mode, **(bootstrap if p.bootstrap else leveled))
    unused = 0 if parameters.bootstrap else 1
    if (engine.slot_count, engine.max_level - unused) != (parameters.slots, parameters.max_level):
        raise AtlasError(
            "desilofhe does not have the parameters that were assumed",
            why=f"{engine.slot_count} slots and {engine.max_level} levels instead of "
            f"{parameters.slots} and {parameters.max_level + unused}",
            remedy=_REMEDY,
        )
    return engine
