"""The only module that imports desilofhe: checks its version, and makes one engine per parameters.

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
_REMEDY = f"pip install {CPU_BUILD}=={REQUIRED_VERSION}"


def installed_build() -> tuple[str | None, str | None]:
    """Distribution and version of the installed desilofhe; None, None if there is none.

    Both builds are one module of one name. If both are installed, the second has overwritten the
    first, and the build for CUDA is reported, because its user wants a GPU.
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
        AtlasError: the library is not installed, has another version, or does not load here.
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

    It computes on all cores or, with the build for CUDA, on the first GPU. It holds only tables and
    no keys, so it is safe to share.

    Raises:
        AtlasError: as :func:`load_library`; the build for CUDA finds no GPU; or the library's
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
