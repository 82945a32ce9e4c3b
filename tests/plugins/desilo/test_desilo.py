"""desilofhe, leveled, at a small ring; key files; parameters. Skipped where it is not installed."""

from __future__ import annotations

import importlib.metadata
import json
import resource
import shutil
import signal
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conformance import EngineConformance, every_key

from atlasc.ir.errors import AtlasError
from atlasc.program.engine import Engine
from atlasc.program.key_plan import KeyPlan
from atlasc.targets import find_target, machine
from atlasc.targets.base import no_progress
from atlasc_comparisons.desilo import keys as desilo_keys
from atlasc_comparisons.desilo import library as desilo_library

pytest.importorskip("desilofhe", reason="the extra 'desilo' is not installed")

from atlasc.targets.key_folders import Role
from atlasc_comparisons.desilo.engine import DesiloEngine
from atlasc_comparisons.desilo.keys import KeySet, generate_to
from atlasc_comparisons.desilo.parameters import BOOTSTRAPPED, DesiloParameters

pytestmark = pytest.mark.encrypted

SMALL = DesiloParameters(14, 1)


def full_key_set(parameters: DesiloParameters) -> KeySet:
    return KeySet.generate(parameters, every_key(parameters))


class TestLeveledSmall(EngineConformance):
    tolerance = 5e-8
    exact = 2e-12

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine[Any]:
        return DesiloEngine(full_key_set(SMALL))


class TestLeveledMiddle(EngineConformance):
    """Two special primes a digit: another decomposition, and another ring."""

    tolerance = 1.5e-7
    exact = 2e-12

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine[Any]:
        parameters = DesiloParameters(15, 5)
        assert parameters.digits(parameters.max_level) == 3
        return DesiloEngine(full_key_set(parameters))


# --- keys


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("keys")
    steps: list[tuple[str, int, int]] = []
    for role in ("client", "server"):
        (root / role).mkdir(mode=0o700)
    generate_to(SMALL, KeyPlan({1: 2, 8191: 3}, 3), root, lambda *step: steps.append(step))
    assert [step[0] for step in steps] == [
        "relinearization key",
        "rotation 1 key",
        "rotation 8191 key",
    ]
    return root / "client", root / "server"


def role_engine(role: Role, folder: Path) -> DesiloEngine:
    return find_target("desilo").role_engine(role, folder, SMALL)


def test_roles_work_in_turn_through_files(folders: tuple[Path, Path]) -> None:
    client_folder, server_folder = folders
    x = np.random.default_rng(0).uniform(-1, 1, SMALL.slots)

    client = role_engine("client", client_folder)
    query = client.serialize(client.encrypt(x, 3))

    server = role_engine("server", server_folder)
    ct = server.deserialize(query)
    answer = server.serialize(server.rotate(server.mul(ct, ct), 1))

    slots = client.decrypt(client.deserialize(answer))
    assert np.abs(slots - np.roll(x * x, -1)).max() <= 5e-8


def test_the_server_can_neither_encrypt_nor_decrypt(folders: tuple[Path, Path]) -> None:
    server = role_engine("server", folders[1])
    client = role_engine("client", folders[0])
    ct = client.encrypt(np.zeros(SMALL.slots), 1)
    for attempt in (lambda: server.decrypt(ct), lambda: server.encrypt(np.zeros(SMALL.slots))):
        with pytest.raises(AtlasError, match="secret key never leaves the client"):
            attempt()
    with pytest.raises(AtlasError, match="client's keys only"):
        client.rotate(ct, 1)


def test_only_the_client_folder_holds_the_secret(folders: tuple[Path, Path]) -> None:
    client, server = folders
    assert sorted(path.name for path in client.iterdir()) == ["keys.json", "secret.key"]
    assert sorted(path.name for path in server.iterdir()) == [
        "keys.json",
        "relinearization.key",
        "rotation_1.key",
        "rotation_8191.key",
    ]
    secret = (client / "secret.key").read_bytes()[-4096:]
    assert all(secret not in path.read_bytes() for path in server.iterdir())


def test_files_are_for_their_owner_alone(folders: tuple[Path, Path]) -> None:
    for folder in folders:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for path in folder.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name


def test_sizes_are_as_predicted(folders: tuple[Path, Path]) -> None:
    size = sum(path.stat().st_size for path in folders[1].glob("*.key"))
    plan = KeyPlan({1: 2, 8191: 3}, 3)
    sizes = desilo_keys._file_bytes(SMALL, plan)
    assert list(sizes) == ["relinearization", "rotation_1", "rotation_8191"]
    predicted = sum(sizes.values())
    assert abs(size - predicted) <= 0.01 * predicted


def test_a_key_that_was_not_written_to_its_end_is_refused(tmp_path: Path) -> None:
    """The library says nothing when a disk is full."""
    (tmp_path / "server").mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL.key_bytes(3) // 2, hard))
    try:
        with pytest.raises(AtlasError, match=r"relinearization\.key cannot be written") as caught:
            generate_to(SMALL, KeyPlan({}, 3), tmp_path, no_progress)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert "the disk is full" in caught.value.why
    assert not (tmp_path / "server" / "keys.json").exists()


def test_a_key_serves_its_level_and_those_below(folders: tuple[Path, Path]) -> None:
    client, engine = role_engine("client", folders[0]), role_engine("server", folders[1])
    ct = client.encrypt(np.arange(SMALL.slots) / SMALL.slots, 3)
    engine.rotate(ct, -1)
    with pytest.raises(AtlasError, match="its key reaches only level 2"):
        engine.rotate(ct, 1)
    with pytest.raises(AtlasError, match="its key reaches only level 2"):
        engine.rotate_many(ct, [1, -1])
    with pytest.raises(AtlasError, match="there is no key"):
        engine.rotate(ct, 2)
    high = client.encrypt(np.zeros(SMALL.slots), 4)
    with pytest.raises(
        AtlasError, match="relinearization at level 4: its key reaches only level 3"
    ):
        engine.square(high)


def test_keys_are_never_overwritten(folders: tuple[Path, Path]) -> None:
    with pytest.raises(FileExistsError):
        generate_to(SMALL, KeyPlan({}), folders[0].parent, no_progress)


def test_foreign_and_damaged_ciphertexts_are_refused(folders: tuple[Path, Path]) -> None:
    client = role_engine("client", folders[0])
    other = DesiloEngine(KeySet.generate(SMALL, KeyPlan({})))
    data = client.serialize(client.encrypt(np.zeros(SMALL.slots), 1))
    with pytest.raises(AtlasError, match="other keys"):
        other.deserialize(data)
    with pytest.raises(AtlasError, match="damaged"):
        client.deserialize(data[:-8])
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    with pytest.raises(AtlasError, match="damaged"):
        client.deserialize(bytes(flipped))
    with pytest.raises(AtlasError, match="not a ciphertext"):
        client.deserialize(b"something else")


def test_folders_of_the_wrong_role_or_incomplete(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    with pytest.raises(AtlasError, match="not the keys of a server"):
        role_engine("server", folders[0])
    with pytest.raises(AtlasError, match="no complete keys"):
        role_engine("client", tmp_path)
    index = (folders[1] / "keys.json").read_text()
    (tmp_path / "keys.json").write_text(index)
    with pytest.raises(AtlasError, match=r"relinearization|rotation_1\.key"):
        role_engine("server", tmp_path)
    (tmp_path / "keys.json").write_text(index[:-20])
    with pytest.raises(AtlasError, match=r"keys\.json cannot be read"):
        role_engine("server", tmp_path)
    (tmp_path / "keys.json").write_text(index.replace('"format": 1', '"format": 9'))
    with pytest.raises(AtlasError, match=r"keys\.json cannot be read") as refused:
        role_engine("server", tmp_path)
    assert refused.value.why == "its format is 9, but this version reads format 1"
    assert json.loads(index)["security_bits"] == 128


def test_a_key_in_the_place_of_another_is_refused(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    server = Path(shutil.copytree(folders[1], tmp_path / "server"))
    shutil.copyfile(server / "rotation_8191.key", server / "rotation_1.key")
    with pytest.raises(AtlasError, match=r"rotation_1\.key is missing or damaged") as caught:
        role_engine("server", server)
    assert "its SHA-256 is not the one in keys.json" in caught.value.why
    (server / "rotation_1.key").unlink()
    (server / "rotation_1.key").symlink_to("/dev/zero")
    with pytest.raises(AtlasError, match=r"rotation_1\.key is missing or damaged"):
        role_engine("server", server)


def test_a_secret_that_others_may_read_is_refused(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    client = Path(shutil.copytree(folders[0], tmp_path / "client"))
    (client / "secret.key").chmod(0o644)
    with pytest.raises(AtlasError, match="open to other users"):
        role_engine("client", client)


def test_values_that_are_not_finite_are_refused() -> None:
    engine = DesiloEngine(KeySet.generate(SMALL, KeyPlan({})))
    bad = np.zeros(SMALL.slots)
    bad[7] = np.nan
    ct = engine.encrypt(np.zeros(SMALL.slots), 1)
    for attempt in (
        lambda: engine.encrypt(bad),
        lambda: engine.mul_plain(ct, bad),
        lambda: engine.add_plain(ct, np.inf),
    ):
        with pytest.raises(AtlasError, match=r"NaN or infinity|number is inf"):
            attempt()


# --- environment


def test_too_little_memory_is_said_before_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda: 2**30)
    monkeypatch.setattr(
        desilo_keys, "library_engine", lambda parameters: pytest.fail("must not start")
    )
    with pytest.raises(AtlasError, match=r"1[5-7]\.\d GiB are needed, but 1\.0 GiB are available"):
        KeySet.generate(BOOTSTRAPPED, KeyPlan({1: 14}))


@pytest.mark.parametrize(
    ("version", "message"), [("2.0.0", "2.0.0 is installed, but version 1.17.0"), (None, "not")]
)
def test_a_wrong_or_missing_library_is_reported(
    monkeypatch: pytest.MonkeyPatch, version: str | None, message: str
) -> None:
    def fake(name: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(desilo_library.importlib.metadata, "version", fake)
    with pytest.raises(AtlasError, match=message) as caught:
        find_target("desilo").check()
    assert "pip install desilofhe==1.17.0" in caught.value.remedy


class _Library:
    """Of desilofhe what the choice of a mode needs."""

    def __init__(self, error: str | None) -> None:
        self.error = error
        self.mode: object = None

    def Engine(self, **arguments: object) -> object:
        self.mode = arguments["mode"]
        if self.error is not None:
            raise RuntimeError(self.error)
        return SimpleNamespace(slot_count=SMALL.slots, max_level=SMALL.max_level + 1)


@pytest.mark.parametrize(
    ("builds", "mode"),
    [
        (("desilofhe",), "parallel"),
        (("desilofhe-cu130",), "gpu"),
        (("desilofhe", "desilofhe-cu130"), "gpu"),
    ],
)
@pytest.mark.parametrize("error", [None, "CUDA driver version is insufficient"])
def test_the_build_for_cuda_computes_on_the_gpu(
    monkeypatch: pytest.MonkeyPatch, builds: tuple[str, ...], mode: str, error: str | None
) -> None:
    def version(name: str) -> str:
        if name not in builds:
            raise importlib.metadata.PackageNotFoundError(name)
        return desilo_library.REQUIRED_VERSION

    library = _Library(error)
    monkeypatch.setattr(desilo_library.importlib.metadata, "version", version)
    monkeypatch.setattr(desilo_library, "load_library", lambda: library)
    make = desilo_library.library_engine.__wrapped__  # past the cache
    if error is None:
        assert make(SMALL).slot_count == SMALL.slots
    elif mode == "gpu":
        with pytest.raises(AtlasError, match="on no GPU here") as caught:
            make(SMALL)
        assert error in caught.value.why
    else:  # not a matter of GPUs: the library's own error
        with pytest.raises(RuntimeError, match=error):
            make(SMALL)
    assert library.mode == mode


# --- parameters


def test_keys_of_the_set_with_bootstraps_are_as_large_as_assumed(tmp_path: Path) -> None:
    """Its digits have five primes: docs/backend-desilo.md tells of seven, and of 245 MiB."""
    engine = desilo_library.library_engine(BOOTSTRAPPED)
    secret, path = engine.create_secret_key(), tmp_path / "relinearization.key"
    assert BOOTSTRAPPED.dnum == 7
    for level in (2, 8, 12, 13, 14, None):
        key = engine.create_relinearization_key(secret, *([] if level is None else [level]))
        engine.write_relinearization_key(key, str(path))
        expected = BOOTSTRAPPED.key_bytes(29 if level is None else level)
        assert path.stat().st_size == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    "parameters", [SMALL, DesiloParameters(15, 2), DesiloParameters(16, 4), BOOTSTRAPPED]
)
def test_library_has_the_assumed_levels_and_slots(parameters: DesiloParameters) -> None:
    assert desilo_library.library_engine(parameters).slot_count == parameters.slots


def test_moduli_are_as_assumed() -> None:
    """The residues of a serialised ciphertext give the bits of its primes."""
    engine = DesiloEngine(KeySet.generate(SMALL, KeyPlan({})))
    data = engine.serialize(engine.encrypt(np.zeros(SMALL.slots)))
    size = 8 * SMALL.ring_degree
    polynomials = 2 * (SMALL.max_level + 2)
    header = len(data) - polynomials * size
    found = []
    for offset in range(header, header - 8, -1):
        rows = np.frombuffer(data[offset : offset + polynomials * size], dtype="<u8")
        bits = np.log2(rows.reshape(polynomials, -1).max(axis=1).astype(float))
        found.append(sorted(np.round(bits[: polynomials // 2], 1).tolist()))
    assert [40.0] * (SMALL.max_level + 1) + [60.0] in found


def test_choice_of_parameters() -> None:
    assert DesiloParameters.choose(3).log_ring_degree == 14
    assert DesiloParameters.choose(12).log_ring_degree == 15
    deep = DesiloParameters.choose(35)
    assert (deep.log_ring_degree, deep.special_primes, deep.max_level) == (16, 4, 35)
    shallow = DesiloParameters.choose(20)
    assert shallow.key_bytes(20) < deep.key_bytes(20)
    assert DesiloParameters.choose(3, 20000).slots == 32768
    assert DesiloParameters.matching(16384, 3, False).slots == 16384  # type: ignore[union-attr]
    assert DesiloParameters.choose(36) == BOOTSTRAPPED
    with pytest.raises(AtlasError, match="slots"):
        DesiloParameters.choose(3, 2**17)
    for levels in range(36):
        chosen = DesiloParameters.choose(levels)
        assert chosen.max_level >= levels
        assert chosen.security_bits >= 128


def test_unusable_parameters_are_refused() -> None:
    for broken in ((15, 1), (16, 1), (16, 2), (16, 3)):
        with pytest.raises(AtlasError, match="no usable parameters"):
            DesiloParameters(*broken)
    with pytest.raises(AtlasError, match="cannot be read"):
        DesiloParameters.from_dict({"log_ring_degree": 14})
    assert DesiloParameters.from_dict(BOOTSTRAPPED.to_dict()) == BOOTSTRAPPED
