"""What is stored of the needs of a bootstrap is what its circuits say."""

from __future__ import annotations

import json

import pytest

from atlasc.targets import OWN, find_target
from atlasc.targets.bootstrap_needs import BootstrapNeeds
from atlasc.targets.ckks import counted_needs
from atlasc.targets.ckks import parameters as needs
from atlasc.targets.ckks.__main__ import stored_sets
from atlasc.targets.ckks.parameters import CkksParameters

SETS = {needs.name_of(one): one for one in stored_sets()}
QUICK = [name for name, one in SETS.items() if one == one.measured_as]
QUICK += ["CpuParameters fifteen_levels_40_fewest_keys 16"]


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.deep("examples"))
     for name in SETS],
)  # fmt: skip
def test_stored_needs_are_the_counted_ones(name: str) -> None:
    """Where this fails: ``python -m atlasc.targets.ckks`` writes the file again."""
    assert needs.needs_of(SETS[name]) == counted_needs.counted_needs(SETS[name])
    assert SETS[name].needs.key_switches > 0


def test_every_stored_row_is_a_set() -> None:
    assert set(json.loads(needs.STORED.read_text())) == set(SETS)


def test_the_default_set_of_every_target_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process of a role counts it."""

    def counted(parameters: CkksParameters) -> BootstrapNeeds:
        raise AssertionError(f"{parameters} is counted")

    monkeypatch.setattr(counted_needs, "counted_needs", counted)
    needs.needs_of.cache_clear()
    for target in OWN:
        kind = find_target(target).parameters
        assert issubclass(kind, CkksParameters) and kind.bootstrapped().needs.memory
    with pytest.raises(AssertionError, match="is counted"):
        _ = kind.bootstrapped(log_ring_degree=12).needs
