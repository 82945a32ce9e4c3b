"""Settings that every test shares."""

from __future__ import annotations

import gc
import importlib.util
import itertools
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.suite.made_once import made_once

if TYPE_CHECKING:
    from cpp_build import Builder
    from tiny_model import Tiny

    import atlasc
    from atlasc_comparisons.desilo.keys import KeySet

# Of several processes each has one thread: those of torch and NumPy would only wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_name, "1")

# Nothing in a test may reach for the network, and tokenizers must not fork under xdist.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

# Predicted times are those of the tables that ship, whatever the user of this machine measured.
os.environ["XDG_DATA_HOME"] = str(Path(__file__).resolve().parent / "no tables here")
os.environ.pop("ATLASC_COSTS", None)
# A shell starts jobs in the background with Ctrl-C ignored, and what they start inherits it: the
# commands that a test interrupts would go on.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ("tests.suite.durations", "tests.suite.depth", "tests.suite.near")
_DRAWN = pytest.StashKey[dict[ModuleType, dict[str, Any]]]()
_BOOTSTRAP_KEYS = pytest.StashKey["KeySet"]()
BOOTSTRAP_BYTES = 17 * 2**30
"""Free memory that a test with bootstrap keys needs."""


BOOTSTRAP_ROTATIONS = (1, 5, 64, 16384, 32765)
"""Amounts that :func:`bootstrap_keys` has keys of: those of the conformance suite."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # First, while most memory is free. The keys of bootstraps are made once for all of them; the
    # library keeps 15 GB of them for the rest of its process, so those of our engine come before.
    items.sort(key=lambda item: item.get_closest_marker("bootstrap") is None)
    items.sort(key=lambda item: item.get_closest_marker("large") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """With ``-n 2``: groups of tests, of which only one has real ciphertexts."""
    if config.getvalue("dist") not in ("load", "loadgroup"):
        return None
    from tests.suite.scheduler import Scheduler

    return Scheduler(config, log)


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[_DRAWN] = {
        module: {
            name: value.bit_generator.state
            for name, value in vars(module).items()
            if isinstance(value, np.random.Generator)
        }
        for module in {item.module for item in session.items if isinstance(item, pytest.Function)}
    }
    # A full collection of garbage walks all of torch and transformers. What is imported by now
    # stays, so it need not be walked; and what a test allocates is collected less often.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_runtest_setup(item: pytest.Item) -> None:
    # What a test draws does not depend on the tests before it, which two processes share by chance.
    if isinstance(item, pytest.Function):
        for name, state in item.config.stash[_DRAWN][item.module].items():
            getattr(item.module, name).bit_generator.state = state
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
    encrypted = item.get_closest_marker("encrypted") or item.get_closest_marker("bootstrap")
    if encrypted and importlib.util.find_spec("desilofhe") is None:
        pytest.skip("needs desilofhe: pip install desilofhe==1.17.0")
    if item.get_closest_marker("bootstrap") and _BOOTSTRAP_KEYS not in item.config.stash:
        from atlasc.targets.machine import available_bytes

        available = available_bytes()
        if available is not None and available < BOOTSTRAP_BYTES:
            pytest.skip(
                f"bootstrap keys need {BOOTSTRAP_BYTES / 2**30:.0f} GiB of free memory, "
                f"{available / 2**30:.1f} GiB are there"
            )


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps the fits of tests out of the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATLASC_CACHE", str(tmp_path_factory.mktemp("fits")))
        yield


@pytest.fixture(scope="session")
def pairs_program() -> atlasc.Program:
    """A BERT of pairs of texts with two classes, for the simulator."""
    from text_models import WORDS, text_model

    import atlasc

    model = text_model("bert")
    texts = [" ".join(words) for words in itertools.product(WORDS[:4], WORDS[4:])]
    return atlasc.compile(
        model.module, [(a, b) for a in texts[:6] for b in ("a", "cat", "on")],
        tokenizer=model.tokenizer, sequence_length=8, batch=2, recipe="is", target="sim",
    )  # fmt: skip


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A small model compiled for the simulator; nobody may change its files."""
    return _tiny(tmp_path_factory, "sim")


@pytest.fixture(scope="session")
def tiny_cpu(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The same for real ciphertexts: two seconds an input."""
    return _tiny(tmp_path_factory, "cpu")


def _tiny(factory: pytest.TempPathFactory, target: str) -> Tiny:
    from tiny_model import Tiny, make_tiny

    return Tiny.of(made_once(factory, f"tiny-{target}", lambda folder: make_tiny(folder, target)))


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random BERT in ``model``, its ``data.jsonl``, and its ``bundle`` with
    bootstraps for the simulator; nobody may change its files."""
    from tiny_model import make_text_bundle

    return made_once(tmp_path_factory, "texts", make_text_bundle)


@pytest.fixture(scope="session")
def cpp(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """The C++ compiler; its objects are kept for the next run and for the other process, in
    ``ATLASC_TEST_OBJECTS`` or in pytest's cache."""
    from cpp_build import Builder

    if named := os.environ.get("ATLASC_TEST_OBJECTS"):
        Path(named).mkdir(parents=True, exist_ok=True)
        return Builder(Path(named))
    cache: pytest.Cache | None = getattr(pytestconfig, "cache", None)
    return Builder(cache.mkdir("objects") if cache else tmp_path_factory.mktemp("objects"))


@pytest.fixture(autouse=True)
def same_umask() -> Iterator[None]:
    """No test leaves another umask to those after it."""
    before = os.umask(0o077)
    os.umask(before)
    yield
    after = os.umask(before)
    assert after == before, f"the umask became {after:03o}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """Give the memory of the bootstrap keys back after the last test that needs them."""
    yield
    stash = item.config.stash
    if _BOOTSTRAP_KEYS in stash and not (nextitem and nextitem.get_closest_marker("bootstrap")):
        from atlasc_comparisons.desilo.library import library_engine

        del stash[_BOOTSTRAP_KEYS]
        library_engine.cache_clear()
        gc.collect()


@pytest.fixture(scope="module")
def bootstrap_keys(pytestconfig: pytest.Config) -> KeySet:
    """The one set of bootstrap keys of all tests: 16 GB and two minutes."""
    from atlasc.program.key_plan import KeyPlan
    from atlasc_comparisons.desilo.keys import KeySet
    from atlasc_comparisons.desilo.parameters import BOOTSTRAPPED

    if _BOOTSTRAP_KEYS not in pytestconfig.stash:
        plan = KeyPlan(dict.fromkeys(BOOTSTRAP_ROTATIONS, BOOTSTRAPPED.max_level))
        pytestconfig.stash[_BOOTSTRAP_KEYS] = KeySet.generate(BOOTSTRAPPED, plan)
    return pytestconfig.stash[_BOOTSTRAP_KEYS]
