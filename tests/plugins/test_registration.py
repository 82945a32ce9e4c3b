"""What we compare with registers itself, and the compiler goes without it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import distribution

import pytest

from atlasc.ir import plugins as registry
from atlasc.ir.errors import AtlasError
from atlasc.ir.text.approximations import algorithms, read_approximation
from atlasc.polynomials.recipes import recipe, recipe_names
from atlasc.targets import OWN, find_target, target_names

ATTRIBUTE = {"algorithm": "power_exp", "steps": 7, "divisor": 100.0, "shift": 0.0}


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No package but atlasc registers anything."""
    own = distribution("atlasc").entry_points
    monkeypatch.setattr(registry, "entry_points", own.select)
    for cache in (registry.plugins, algorithms):
        cache.cache_clear()
    yield
    for cache in (registry.plugins, algorithms):
        cache.cache_clear()


def test_targets_recipes_and_algorithms_are_found() -> None:
    assert target_names() == (*OWN, "desilo")
    assert find_target("desilo").name == "desilo"
    assert set(recipe_names()) == {"is", "nexus", "thor", "moai", "arion", "polaris"}
    assert (
        type(read_approximation("nn.softmax", ATTRIBUTE)).__module__ == "atlasc_comparisons.nexus"
    )


def test_without_the_package_each_is_refused_by_name(alone: None) -> None:
    assert target_names() == OWN and recipe_names() == ("is",)
    with pytest.raises(AtlasError, match="there is no target 'desilo'"):
        find_target("desilo")
    with pytest.raises(AtlasError, match="there is no recipe 'nexus'") as caught:
        recipe("nexus")
    assert "atlasc-comparisons" in caught.value.remedy
    with pytest.raises(AtlasError, match="knows no approximation algorithm 'power_exp'"):
        read_approximation("nn.softmax", ATTRIBUTE)
    assert recipe("is") is not None
