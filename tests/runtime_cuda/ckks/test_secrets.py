"""Where secrets come from, what is made of them, and that they are wiped."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

DEVICES = ("host", "cuda")
Secrets = Callable[..., "subprocess.CompletedProcess[bytes]"]


def lines(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().splitlines()


DIGESTS = """
secret aceccef04cf24083ac6519e26e46b716f7abdb90ebf2a1fd57967248d874dabf
sparse secret cfe8a8a66ab3609b4546944a9215b1b45f7b6d52c4b708e9ffb549d593cd6518
relinearisation 790f8c34a72293c5192d635f35a308c9dffb19a8f6e749576ba41fbb36f07a0b
conjugation bccce8a2d143e7d1d78f188b90bb5a03ae09d25c9fd7587d920a477413d0c4f0
to sparse b57cc4b7510896ce5d490cc8f470496681f90f6f6fac32ffb0d8e39c3842e45f
to dense 148a90a1b2260a1c62b7ba2eed00b381b05fb8d8ccebe0c1cc9a16c1e6d5c0e2
rotation/1 a899c1c493440076719210ddd91d1d00328d6c0fe7cf93e03d72cf36671d1adb
rotation/5 24b4be601f5830a2996f7588aff393c66cc29dba057dfe1a7051c15ff51e53e1
rotation/7 9cd3b3336e918c172632fe992cad4d360bf8072eb8a9ba19b4bddc11dc18a361
rotation/64 d6380ea02b667dd7ec3f3cb072b50106b92653c93232f47918b99c0219e07279
rotation/1023 d79ef4b9eb04ea0362f55e3b15e68464b45d2b28657a4524378c9591215f672f
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
