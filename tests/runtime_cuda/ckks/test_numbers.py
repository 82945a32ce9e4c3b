"""Random polynomials and arithmetic modulo primes."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from atlasc.emit.parameter_set import parameter_set
from atlasc.targets.cpu import CpuParameters

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"


@pytest.fixture(scope="session")
def numbers(build: Callable[..., Path]) -> Callable[..., list[float]]:
    program = build("numbers", PROGRAMS / "numbers.cpp", HERE.parent / "conformance/programs.cpp")

    def printed(*arguments: object) -> list[float]:
        command = [str(program), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return [int(word) if word.isdigit() else float(word) for word in done.stdout.split()]

    return printed


NO_NONCE = "00" * 12
# Key, nonce, counter, block: RFC 8439, section 2.3.2 and appendix A.1.
BLOCKS = [
    (
        bytes(range(32)).hex(),
        "000000090000004a00000000",
        1,
        """10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e
           d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e""",
    ),
    (
        "00" * 32,
        NO_NONCE,
        0,
        """76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7
           da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586""",
    ),
    (
        "00" * 32,
        NO_NONCE,
        1,
        """9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed
           29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f""",
    ),
    (
        "00" * 31 + "01",
        NO_NONCE,
        1,
        """3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a
           8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0""",
    ),
    (
        "00ff" + "00" * 30,
        NO_NONCE,
        2,
        """72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca
           13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096""",
    ),
    (
        "00" * 32,
        "00" * 11 + "02",
        0,
        """c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7
           8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d""",
    ),
]


def words_of(text: str) -> list[int]:
    data = bytes.fromhex(text)
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]


@pytest.mark.parametrize(("key", "nonce", "counter", "block"), BLOCKS)
def test_chacha20_of_the_standard(
    numbers: Callable[..., list[float]], key: str, nonce: str, counter: int, block: str
) -> None:
    found = numbers("chacha20", *words_of(key), counter, *words_of(nonce))
    assert len(found) in (16, 17 * 16)  # with and without a processor's vectors
    assert found == words_of(block) * (len(found) // 16)


def test_reduction_is_exact(numbers: Callable[..., list[float]]) -> None:
    rng = random.Random(3)
    for q in (2**60 - 2**18 + 1, 2**46 + 2**17 + 1, 2**30 + 1, 2**60 - 1):
        multiple = (2**128 - 1) // q * q
        for x in (0, q - 1, q, multiple - 1, multiple, 2**128 - 1, rng.getrandbits(128)):
            assert numbers("reduce", q, x % 2**64, x >> 64) == [x % q]


def test_python_has_the_same_digits(numbers: Callable[..., list[float]], tmp_path: Path) -> None:
    parameters = CpuParameters.bootstrapped()
    levels = range(len(parameters.moduli.primes))
    written = tmp_path / "set"
    written.write_bytes(parameter_set(parameters.bootstrap, copies=(1, 32)))
    assert numbers("digits", written) == [parameters.digits(at) for at in levels]
    assert [parameters.digits(at) for at in (8, 9, 18, levels[-1])] == [1, 2, 2, 4]
