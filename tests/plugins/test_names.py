"""Names of what other packages register: those that a file or a command cannot have are refused
before anything is made with them. The page on new targets runs as it is written.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path

import pytest
from doc_blocks import ROOT, blocks_of
from tiny_model import make_tiny

import atlasc
from atlasc.ir import plugins as registry
from atlasc.ir.errors import AtlasError
from atlasc.ir.text.approximations import algorithms
from atlasc.passes.registry import passes
from atlasc.polynomials.recipes import recipe, recipe_names
from atlasc.targets import OWN, find_target, target_names
from atlasc.targets.cost_table import shipped_place

PAGE = ROOT / "docs/how-to/add-a-target.md"
REGISTERED = re.compile(r"entry point of the group `(\S+)`, `(\S+) = \"(\w+:\w+)\"`")
MODULE = """
from dataclasses import dataclass
from typing import ClassVar

from atlasc.ir.approximation import ApproximationAttribute
from atlasc.passes.lowering.forget_calibration import ForgetCalibration
from atlasc.polynomials.recipes import IS as RECIPE


@dataclass(frozen=True)
class Odd(ApproximationAttribute):
    family: ClassVar[str] = "softmax"
    algorithm: ClassVar[str] = {name!r}


@dataclass(frozen=True)
class Step(ForgetCalibration):
    name: ClassVar[str] = {name!r}
"""


class Package:
    """A package that is installed for a test.

    Attributes:
        folder: of its modules.
        entries: what it registers.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.entries = folder, list[EntryPoint]()

    def add(self, group: str, name: str, value: str, text: str) -> None:
        """Register an object of a new module."""
        (self.folder / f"{value.partition(':')[0]}.py").write_text(text)
        self.entries.append(EntryPoint(name, value, group))
        forget()


def forget() -> None:
    for cache in (registry.plugins, algorithms, passes):
        cache.cache_clear()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    made = Package(tmp_path / "package")
    made.folder.mkdir()
    monkeypatch.syspath_prepend(made.folder)

    def both(**chosen: str) -> EntryPoints:
        mine = EntryPoints(made.entries).select(**chosen)
        return EntryPoints([*entry_points(**chosen), *mine])

    monkeypatch.setattr(registry, "entry_points", both)
    forget()
    yield made
    forget()
    for path in made.folder.glob("*.py"):
        sys.modules.pop(path.stem, None)


def page() -> tuple[str, str, str, str]:
    """What the page registers, and the Python that it shows."""
    found = REGISTERED.search(PAGE.read_text())
    assert found is not None
    (block,) = [one for one in blocks_of(PAGE) if one.language == "python"]
    return found[1], found[2], found[3], block.text


def test_the_target_of_the_page_compiles_and_its_bundle_opens(
    package: Package, tmp_path: Path
) -> None:
    group, name, value, text = page()
    package.add(group, name, value, text)
    assert name in target_names()
    tiny = make_tiny(tmp_path, name)
    assert atlasc.load(tiny.bundle).bundle.target == name


@pytest.mark.parametrize(
    "name",
    ["my-count", "My", "9lives", "a b", "a" * 32, "", "a/b", "../a", "\u0430", "a\n", "a\x1b"],
)
def test_a_target_that_no_bundle_can_name(package: Package, name: str) -> None:
    group, named, value, text = page()
    package.add(group, name, value, text.replace(f'"{named}"', repr(name)))
    with pytest.raises(AtlasError, match="cannot be used") as caught:
        find_target(name)
    assert "names match" in caught.value.why and "\x1b" not in str(caught.value)


def test_a_target_has_the_name_of_its_entry_point(package: Package) -> None:
    group, name, value, text = page()
    package.add(group, "other", value, text)
    with pytest.raises(AtlasError, match="cannot be used") as caught:
        find_target("other")
    assert f"'other', and the target '{name}'" in caught.value.why


@pytest.mark.parametrize("name", [*OWN, "is"])
def test_a_name_of_ours(package: Package, name: str) -> None:
    """It would be ignored, or stand for ours, without a word; its costs did the latter."""
    kind, find = ("recipes", recipe) if name == "is" else ("targets", find_target)
    costs = shipped_place(name)
    package.add(f"atlasc.{kind}", name, "odd_one:RECIPE", MODULE.format(name=name))
    with pytest.raises(
        AtlasError, match=f"{name} of an installed package cannot be used"
    ) as caught:
        find(name)
    assert "atlasc itself has one" in caught.value.why
    assert target_names().count(name) + recipe_names().count(name) == 1
    assert shipped_place(name) == costs


def test_names_of_recipes_algorithms_and_passes(package: Package) -> None:
    name = "my/one"
    text = MODULE.format(name=name)
    package.add("atlasc.recipes", name, "odd_one:RECIPE", text)
    with pytest.raises(AtlasError, match="cannot be used") as caught:
        recipe(name)
    assert "names match" in caught.value.why
    for group, value, call in (
        ("atlasc.algorithms", "odd_one", algorithms), ("atlasc.passes", "odd_one:Step", passes)
    ):  # fmt: skip
        package.add(group, "fine", value, text)
        with pytest.raises(AtlasError, match="cannot be used") as caught:
            call()
        assert f"{name!r}; names match" in caught.value.why
        package.entries.pop()


def test_two_packages_with_one_name(package: Package) -> None:
    group, name, value, text = page()
    package.add(group, name, value, text)
    package.add(group, name, value, text)  # the same, seen twice
    assert find_target(name).name == name
    package.add(group, name, "another:TARGET", text)
    with pytest.raises(AtlasError, match="cannot be used") as caught:
        find_target(name)
    assert "packages differ: another:TARGET, my_package:TARGET" in caught.value.why
