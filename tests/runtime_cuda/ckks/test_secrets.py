"""Where secrets come from, what is made of them, and that they are wiped."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

DEEP = pytest.mark.deep("engines")
DEVICES = ("host", *(pytest.param(name, marks=DEEP) for name in ("cuda", "phantom")))
Secrets = Callable[..., "subprocess.CompletedProcess[bytes]"]


def lines(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().splitlines()


DIGESTS = """
secret aceccef04cf24083ac6519e26e46b716f7abdb90ebf2a1fd57967248d874dabf
sparse secret cfe8a8a66ab3609b4546944a9215b1b45f7b6d52c4b708e9ffb549d593cd6518
relinearisation 13cd181d42d5b8352baa9fe80cc688bf75c39517a4e7eb20e129c6756e08c332
conjugation 9d09db01e506d3172e2277f22c1d9132a6243b3f2dfe092c8e4ad5aa9455ff9b
to sparse 24b05687763a82b12c6c6e8fee037c3d33010a3730f13b932bf4f823209e4979
to dense 7b4d9a55706ca1cd4af92d950f097d189c7385061a23d3fb50488ced4301f532
copies to dense 5081b27cbe13d3736d4798ec303d7032fe29946dd5a2e8f4d6f0ef997cc314b8
rotation/1 9f9f17454cb07c7611af0b033959cdf0318a54ac7644c508cb8bc8faa763c380
rotation/5 45cbb22bed65bf9fa73f901871edb7d0675e0e4fc37518695459c5adca077c5a
rotation/7 8a80583aabc639fcf009436dea92aa8ded4502df6aaca6a08027dc97e82f10ea
rotation/64 e0274a165d08cac1f401f0306ec7e9a164eae257dc4487289991af25e4558254
rotation/1023 31c910b72c674b99f1298df6f58feb8f1ee84e75c004a6bcae4ff7d5e4c3bf6e
ciphertext 1802f2e2ccefb15752b8fb258918e3f4113311db941e4d3118607ed15338896d
ciphertext of the same 548907e99a3c9329af52c424dd89f04f85b0b05c7ef98d9bb4059b1b8a542595
""".strip().splitlines()
"""SHA-256 of what entropy number 1 makes. Another digest is another format of keys, or an error."""


@pytest.mark.parametrize("device", DEVICES)
def test_known_answers(secrets: Secrets, device: str) -> None:
    assert lines(secrets("digests", device=device)) == DIGESTS


def test_nothing_is_made_twice(secrets: Secrets) -> None:
    runs = [lines(secrets("digests", entropy=entropy)) for entropy in ("1", None, None)]
    digests = [line.rsplit(" ", 1)[1] for run in runs for line in run]
    assert len(set(digests)) == len(digests) == 3 * len(DIGESTS)


@pytest.mark.parametrize("command", ["digests", "ternary", "sparse"])
def test_a_system_without_entropy_is_an_error(secrets: Secrets, command: str) -> None:
    done = secrets(command, 1, entropy="none")
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"the system gives no random numbers" in done.stderr


def test_blocks_of_the_pool_that_held_a_secret_hold_zeros(secrets: Secrets) -> None:
    assert lines(secrets("pool")) == []


@pytest.mark.parametrize("device", DEVICES)
def test_no_secret_is_left_in_memory(secrets: Secrets, device: str, tmp_path: Path) -> None:
    # What is found after the count belongs to a client that still lives.
    assert lines(secrets("wiped", tmp_path, device=device)) == [
        "of 20",
        "left: the secret, values",
    ]
