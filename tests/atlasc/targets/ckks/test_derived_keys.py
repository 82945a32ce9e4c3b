"""Rotation keys that a server derives: as exact as those that are sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atlasc.ir.errors import AtlasError
from atlasc.passes.lowering.keys.derive_rotations import with_derived
from atlasc.program.key_plan import HOPS, Derivation, KeyPlan, Root
from atlasc.runtime.native import load_library
from atlasc.targets import find_target
from atlasc.targets.base import no_progress
from atlasc.targets.ckks.roots import MOST_MORE
from atlasc.targets.cpu.engine import CpuEngine
from atlasc.targets.cpu.parameters import CpuParameters

SET = CpuParameters(14, 5, 2)
SLOTS = SET.slots
LEVEL, ROOT = next((level, root) for level, root in SET.roots.items() if level == 1)
PLAN = KeyPlan(
    {1: 1, 2: 1, 3: 1, 64: 4, 65: 0, 66: 0},
    derivation=Derivation(LEVEL, ROOT.last, {1: 1, 2: 1, 3: 1, 65: 1, 66: 1}),
)


def error_of(client: CpuEngine, server: CpuEngine, amount: int, level: int) -> float:
    """Standard deviation of a rotation's error."""
    vector = np.random.default_rng(amount).uniform(-1, 1, client.slots)
    sent = client.serialize(client.drop_to(client.encrypt(vector), level))
    turned = server.serialize(server.rotate(server.deserialize(sent), amount))
    return float(np.std(client.decrypt(client.deserialize(turned)) - np.roll(vector, -amount)))


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    st.dictionaries(st.integers(1, SLOTS - 1), st.integers(0, SET.max_level), max_size=4),
    st.lists(st.integers(1, SLOTS - 1), min_size=1, max_size=3, unique=True),
    st.data(),
)
def test_a_derived_key_rotates_as_one_that_is_sent(
    sent: dict[int, int], roots: list[int], data: st.DataObject
) -> None:
    """From known keys, by any roots, level by level, up to the most hops."""
    rotations, chosen, hops = dict(sent), {}, dict.fromkeys((0, *sent), 0)
    for _ in range(data.draw(st.integers(1, 2 * HOPS))):
        start, root = data.draw(st.sampled_from(sorted(hops))), data.draw(st.sampled_from(roots))
        amount, reach = (start + root) % SLOTS, min(rotations.get(start, LEVEL), LEVEL)
        if amount not in hops and hops[start] < HOPS:
            rotations[amount], chosen[amount] = data.draw(st.integers(0, reach)), root
            hops[amount] = hops[start] + 1
    plan = KeyPlan(rotations, derivation=Derivation(LEVEL, ROOT.last, chosen))
    engine = CpuEngine.fresh(SET, plan, no_progress)
    noise = SET.noise_model()
    for amount in chosen:
        level = rotations[amount]
        expected = np.hypot(noise.fresh, noise.of_key_switch(level))
        assert error_of(engine, engine, amount, level) < 1.1 * MOST_MORE * expected


def test_files_of_fewer_keys(tmp_path: Path) -> None:
    """They have the bytes that were told, and a server rotates with all keys of the program."""
    made(PLAN, tmp_path)
    size = (tmp_path / "server/evaluation.key").stat().st_size
    assert size == told(PLAN) < told(replace(PLAN, derivation=Derivation()))
    client = CpuEngine.load("client", tmp_path / "client", SET, None)
    server = CpuEngine.load("server", tmp_path / "server", SET, PLAN)
    for amount, level in PLAN.rotations.items():
        assert error_of(client, server, amount, level) < 1e-8
    some = replace(PLAN, rotations={64: 4}, derivation=Derivation())
    server = CpuEngine.load("server", tmp_path / "server", SET, some)
    assert error_of(client, server, 64, 4) < 1e-8
    other = replace(PLAN, derivation=replace(PLAN.derivation, roots={3: 3}))
    with pytest.raises(AtlasError, match="made for another program") as refusal:
        CpuEngine.load("server", tmp_path / "server", SET, other)
    assert "first the key for rotation 1 to level 1" in refusal.value.why


def told(plan: KeyPlan) -> int:
    """Bytes of the file of evaluation keys, before it is made."""
    interface = load_library().Interface(
        model="", identity="", inputs=[], publics=[], outputs=[],
        rotations={}, relinearization_level=-1, conjugation_level=-1, derivation=(-1, -1, {}),
    )  # fmt: skip
    found = find_target("cpu").sent_bytes(SET, plan, interface, 1)
    assert found is not None
    return found.keys


def test_a_server_reads_keys_that_it_could_derive(tmp_path: Path) -> None:
    """Those of a client that knows no roots."""
    every = replace(PLAN, derivation=Derivation())
    folder = made(every, tmp_path)
    client = CpuEngine.load("client", folder / "client", SET, None)
    server = CpuEngine.load("server", folder / "server", SET, PLAN)
    for amount, level in PLAN.rotations.items():
        assert error_of(client, server, amount, level) < 1e-8


def made(plan: KeyPlan, folder: Path) -> Path:
    for role in ("client", "server"):
        (folder / role).mkdir()
    CpuEngine.generate_to(SET, plan, folder, no_progress)
    return folder


def test_roots_that_a_file_lacks_are_named(tmp_path: Path) -> None:
    """Where no index says so before."""
    keys = (made(PLAN, tmp_path) / "server/evaluation.key").read_bytes()
    for derivation, message in (
        (Derivation(1, ROOT.last + 1, PLAN.derivation.roots), "has no roots that the program's"),
        (Derivation(1, ROOT.last, {1: 1, 2: 1, 3: 2}), "lacks a key that the program needs"),
    ):
        with pytest.raises(AtlasError, match=message) as refusal:
            CpuEngine.server(keys, SET, replace(PLAN, derivation=derivation))
        assert refusal.value.remedy == "make keys with this program's client"


@pytest.mark.parametrize(
    ("rotations", "derivation", "why"),
    [
        ({1: 1}, Derivation(1, 3, {1: 0}), "the rotation by 1 has no root"),
        ({1: 1}, Derivation(1, 3, {1: SLOTS}), "the rotation by 1 has no root"),
        ({1: 2}, Derivation(1, 3, {1: 1}), "does not reach its level"),
        ({1: 0, 2: 1}, Derivation(1, 3, {2: 1}), "the key before it does not"),
        ({2: 1}, Derivation(1, 3, {2: 1}), "the key before it does not"),
        ({1: 1}, Derivation(1, 3, {2: 2}), "does not reach its level"),
        ({1: 1, SLOTS // 2 + 1: 1}, Derivation(1, 3, {1: SLOTS // 2, SLOTS // 2 + 1: SLOTS // 2}),
         "more than 8 rotations away"),
        (dict.fromkeys(range(1, 10), 1), Derivation(1, 3, dict.fromkeys(range(1, 10), 1)),
         "the rotation by 9 is more than 8 rotations away"),
        ({1: 1}, Derivation(1, 1, {1: 1}), "levels that the parameters do not have"),
        ({1: 1}, Derivation(1, 6, {1: 1}), "levels that the parameters do not have"),
        ({1: 1}, Derivation(1, 2, {1: 1}), "too small ones"),
    ],
)  # fmt: skip
def test_what_cannot_be_derived_is_refused(
    rotations: dict[int, int], derivation: Derivation, why: str
) -> None:
    with pytest.raises(AtlasError, match="cannot be derived") as refusal:
        CpuEngine.fresh(SET, KeyPlan(rotations, derivation=derivation), no_progress)
    assert why in refusal.value.why


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.dictionaries(st.integers(1, 63), st.integers(0, 5), max_size=30),
    st.sets(st.integers(1, 63), max_size=4),
)
def test_a_plan_derives_what_saves_bytes(rotations: dict[int, int], shared: set[int]) -> None:
    """All keys keep their levels or rise to those that are derived from them."""
    sizes = [(level + 1) * (level + 3) for level in range(6)]
    roots = {1: Root(3, 20), 3: Root(5, 30)}
    plan = KeyPlan(rotations, 4)
    found = with_derived(plan, roots, sizes, 64, shared)
    derivation = found.derivation
    assert found.rotations.keys() == rotations.keys() and found.relinearization_level == 4
    if not derivation.roots:
        assert found == plan
        return
    level = derivation.level
    assert derivation.last == roots[level].last and not derivation.roots.keys() & shared
    hops = dict.fromkeys((0, *found.sent), 0)
    while waiting := derivation.roots.keys() - hops.keys():
        before = {amount: (amount - derivation.roots[amount]) % 64 for amount in waiting}
        hops |= {amount: hops[one] + 1 for amount, one in before.items() if one in hops}
        assert waiting & hops.keys(), "a key is derived from itself"
    assert max(hops.values()) <= HOPS
    for amount, root in derivation.roots.items():
        at, start = found.rotations[amount], (amount - root) % 64
        assert rotations[amount] <= at <= level
        assert start == 0 or found.rotations[start] >= at
    sent = {one: at for one, at in found.sent.items() if one not in shared}
    assert sent.items() <= rotations.items(), "the level of a key that is sent does not rise"
    cost = len({*derivation.roots.values()}) * roots[level].bytes
    assert sum(sizes[rotations[amount]] for amount in derivation.roots) > cost


def test_plans_of_two_programs() -> None:
    """A key that another program needs at a higher level is sent."""
    both = PLAN.union(KeyPlan({2: 3, 3: 0}))
    assert both == KeyPlan(PLAN.rotations | {2: 3}).union(both)
    assert both.derivation == replace(PLAN.derivation, roots={1: 1, 3: 1, 65: 1, 66: 1})
    assert PLAN.union(KeyPlan({})) == KeyPlan({}).union(PLAN) == PLAN


def test_sets_whose_key_switches_have_no_room_have_no_roots() -> None:
    """The error of a derived key would be larger than what a key switch rounds."""
    assert not CpuParameters(14, 5, 1).roots
    bootstrapped = CpuParameters.bootstrapped()
    assert set(bootstrapped.roots) == set(range(bootstrapped.max_level))
