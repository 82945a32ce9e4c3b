"""The secret key of desilofhe is drawn from the system, not from the state of the library."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import chi2

from atlasc_comparisons.desilo.keys import ternary_secret


@pytest.mark.parametrize("degree", [2**14, 2**16])
def test_a_secret_is_uniform_ternary(degree: int) -> None:
    secret = ternary_secret(degree)
    assert (secret.shape, secret.dtype) == ((degree,), np.int64)
    counts = np.array([(secret == value).sum() for value in (-1, 0, 1)])
    assert counts.sum() == degree
    assert ((counts - degree / 3) ** 2 / (degree / 3)).sum() < chi2.isf(1e-9, 2)
    pairs = np.bincount(3 * (secret[::2] + 1) + secret[1::2] + 1, minlength=9)
    expected = degree / 2 / 9
    assert ((pairs - expected) ** 2 / expected).sum() < chi2.isf(1e-9, 8)


def test_two_secrets_have_nothing_to_do_with_each_other() -> None:
    first, second = ternary_secret(2**16), ternary_secret(2**16)
    assert abs(first @ second) < 10 * np.sqrt(2**16 * 4 / 9)


CLONES = """
import os, hashlib, sys
import desilofhe
from atlasc.program.key_plan import KeyPlan
from atlasc_comparisons.desilo import keys as desilo_keys
from atlasc_comparisons.desilo.parameters import DesiloParameters

engine = desilofhe.Engine(14, 1)  # without threads, which a copy of a process does not have
desilo_keys.library_engine = lambda parameters: engine
child = os.fork()
own = desilo_keys.KeySet.generate(DesiloParameters(14, 1), KeyPlan({})).secret
library = engine.create_secret_key()
for secret in (library, own):
    print(hashlib.sha256(engine.serialize_secret_key(secret)).hexdigest(), flush=True)
if child:
    os.waitpid(child, 0)
"""


@pytest.mark.encrypted
def test_a_copy_of_the_process_makes_another_secret() -> None:
    """As after a virtual machine was copied while it ran: the library repeats itself."""
    pytest.importorskip("desilofhe", reason="the extra 'desilo' is not installed")
    done = subprocess.run(
        [sys.executable, "-c", CLONES], capture_output=True, text=True, timeout=120, check=True
    )
    digests = re.findall("[0-9a-f]{64}", done.stdout)  # two processes may write into one line
    assert len(digests) == 4
    # The library's own two are one and the same, those of the two key sets are not.
    assert len(set(digests)) == 3
