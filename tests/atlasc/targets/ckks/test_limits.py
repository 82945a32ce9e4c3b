"""Parameter sets and keys that no engine can have, in bundles that pass every other check."""

from __future__ import annotations

import json
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tiny_model import Tiny

from atlasc.bundle.manifest import INTERFACE_FILE
from atlasc.ir.errors import AtlasError
from atlasc.targets.ckks.parameters import MOST_LOG_DEGREE, MOST_PRIMES, MOST_SPECIAL
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.cuda import CudaParameters
from atlasc.targets.phantom import PhantomParameters
from tests.atlasc.cli.command import refused, run
from tests.atlasc.remote.hostile import forged

KINDS = (CpuParameters, CudaParameters, PhantomParameters)
LARGEST = MOST_LOG_DEGREE, MOST_PRIMES - 1, MOST_SPECIAL


@pytest.mark.parametrize("kind", KINDS)
def test_a_set_at_the_limits(kind: type[PhantomParameters]) -> None:
    largest = kind(*LARGEST)
    assert largest.residues(largest.max_level) == MOST_PRIMES
    assert list(kind.leveled(MOST_PRIMES)) == []
    for place, number in enumerate(LARGEST):
        for wrong in (number + 1, -1, 10**12):
            numbers = [*LARGEST[:place], wrong, *LARGEST[place + 1 :]]
            with pytest.raises(AtlasError, match="does not support these parameters"):
                kind(*numbers)


@pytest.mark.parametrize("numbers", [(16, 63, 8), (16, 18, 1)])
def test_a_bootstrap_has_its_own_levels_and_special_primes(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(AtlasError, match="have 18 levels and 8 special primes, not"):
        CpuParameters(*numbers, bootstrap="fifteen_levels_40")


def crafted(tiny: Tiny, folder: Path, **changes: object) -> Path:
    """A copy whose manifest has changed members, and says the truth about them."""
    bundle = Path(shutil.copytree(tiny.bundle, folder / "bundle"))
    path = bundle / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return bundle


SETS: dict[str, tuple[dict[str, Any], int, str]] = {
    "65 primes, which gave the secret away": (
        {"log_ring_degree": 17, "levels": 64, "special_primes": 1},
        128,
        "it has 64 levels; 0 to 63 are possible",
    ),
    "200 primes": (
        {"log_ring_degree": 17, "levels": 200, "special_primes": 8},
        0,
        "it has 200 levels",
    ),
    "no special primes": ({"special_primes": 0}, 128, "it has 0 special primes"),
    "a ring of 2^18": ({"log_ring_degree": 18}, 0, "its ring degree is 2^18"),
    "a ring of a trillion bits": ({"log_ring_degree": 10**12}, 0, "its ring degree is 2^"),
    "too many levels for the ring": ({"levels": 40}, 60, "60 bits of security; 128 are required"),
    "no estimate for its sparse secret": (
        {
            "log_ring_degree": 17,
            "levels": 18,
            "special_primes": 8,
            "bootstrap": "fifteen_levels_40",
        },
        0,
        "0 bits of security; 128 are required",
    ),
}


@pytest.mark.parametrize("name", SETS)
def test_keygen_refuses_a_set_in_one_message(name: str, tiny_cpu: Tiny, tmp_path: Path) -> None:
    changes, bits, message = SETS[name]
    parameters = json.loads((tiny_cpu.bundle / "manifest.json").read_text())["parameters"]
    facts = {"parameters": parameters | changes, "security_bits": bits, "insecure": bits < 128}
    bundle = crafted(tiny_cpu, tmp_path, **facts)
    found = refused("keygen", bundle, "--keys", tmp_path / "keys")
    assert message in " ".join(found.split())
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize("attribute", ["rotations", "relinearization_level"])
def test_keygen_refuses_a_key_beyond_the_levels(
    attribute: str, tiny_cpu: Tiny, tmp_path: Path
) -> None:
    """The engine read past the list of its levels."""
    bundle = crafted(tiny_cpu, tmp_path)
    patterns = {
        "rotations": r'("keys": \{"rotations": \[\[\d+, )\d+',
        "relinearization_level": r'("keys": .*?"relinearization_level": )\d+',
    }
    edit = partial(re.sub, patterns[attribute], r"\g<1>999", count=1)
    bundle = forged(bundle, tmp_path / "forged", {INTERFACE_FILE: lambda text: edit(string=text)})
    assert "level 999" in refused("keygen", bundle, "--keys", tmp_path / "keys")
    assert not (tmp_path / "keys").exists()


def test_the_bundle_itself_has_keys(tiny_cpu: Tiny, tmp_path: Path) -> None:
    run("keygen", crafted(tiny_cpu, tmp_path), "--keys", tmp_path / "keys")
