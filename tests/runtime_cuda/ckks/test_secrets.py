"""Where secrets come from, what is made of them, and that they are wiped."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

DEVICES = ("host", "cuda", "phantom")
Secrets = Callable[..., "subprocess.CompletedProcess[bytes]"]


def lines(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().splitlines()


DIGESTS = """
secret aceccef04cf24083ac6519e26e46b716f7abdb90ebf2a1fd57967248d874dabf
sparse secret cfe8a8a66ab3609b4546944a9215b1b45f7b6d52c4b708e9ffb549d593cd6518
relinearisation 6bfa97b63b983f8ddfb89d21f336b9923e8c066218e6a1dae9d859b027e14922
conjugation 7aa1f366960f0391ff82a2b7e145459e6137211806197024c49da1c216ed5f6c
to sparse 1b9aaa60e09a2a15bea1cd575edb5acbfb70fcb7623370e7015950c2531d9075
to dense ff9e111da83d6ed8eaade0f4f594ec29f3e42369f6ee16bb507d0cfe2ba4f5d2
rotation/1 3420d74fc9a8633c3032c98b191012eba8b6ef247b89118d1a858ef30a0bcf91
rotation/5 9e585c93b38b933268e6958968763347b399aaed1bcfe66215070444d6673f1f
rotation/7 5f68d499fba049df4c8a28964e8f156f55b2611bca04969ddebf1c4715e7bc2f
rotation/64 fc3a1881ecacc67065c24adc35af61fb541b0fffaa2ab89b93a0ba709d1c03cb
rotation/1023 66c06b07f3ed5d6133ce3b570a6f244d330a42053113ffe65754aa05db997275
ciphertext dd84b04d3f9a431ba6c945007a352e550703de0c95d94810d2ccb69cb1b2d425
ciphertext of the same cf4d9f3f7dc36d1afc39139c0c79aa4bc0dbdde1a0e94aa2d221bcd5bd4129c4
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
        "of 14",
        "left: the secret, values",
    ]
