"""Numbers that may be passed on: how much noise, how many digits, how often."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_model import Tiny
from typer.testing import CliRunner

from atlasc.api import roles
from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.bundle.ledger import Entry, Ledger
from atlasc.bundle.messages import Message
from atlasc.cli import app
from atlasc.client.checks import Answers
from atlasc.client.sharing import floods, require_digits, safe_digits, secure_normal, share
from atlasc.ir.errors import AtlasError
from atlasc.targets import find_target


@pytest.fixture
def bundle(tiny: Tiny) -> Bundle:
    return load_bundle(tiny.bundle)


@pytest.mark.parametrize(("bits", "shares", "count"), [(30, 1, 1), (40, 1000, 2), (31, 7, 2)])
def test_the_divergence_of_all_answers_is_what_the_analysis_allows(
    bundle: Bundle, bits: int, shares: int, count: int
) -> None:
    (output,) = bundle.client.interface.outputs
    flood = floods(bundle.client.interface, count, bits, shares)["output"]
    # sqrt(12 tau) 2^(kappa/2) B, with B of 3 numbers an input.
    norm = output.attributes["noise"] * math.sqrt(3 * count)
    assert flood.deviation == pytest.approx(math.sqrt(12 * shares) * 2 ** (bits / 2) * norm)
    divergence = shares * norm**2 / (2 * flood.deviation**2)
    assert divergence == pytest.approx(2.0**-bits / 24)


def test_digits_are_those_above_the_noise(bundle: Bundle) -> None:
    (output,) = bundle.client.interface.outputs
    assert 0.1 < output.attributes["magnitude"] < 1
    for noise, digits in ((1e-6, 0), (1e-8, 2), (1e-9, 3)):
        output.attributes["noise"] = noise
        flood = floods(bundle.client.interface, 1)["output"]
        assert flood.digits == digits == safe_digits(bundle.client.interface)
        assert 10.0 ** -(flood.decimals + 1) < flood.deviation <= 10.0**-flood.decimals


def test_an_output_without_a_digit_is_refused_before_it_is_decrypted(bundle: Bundle) -> None:
    (output,) = bundle.client.interface.outputs
    output.attributes["noise"] = 2.0**-18
    with pytest.raises(AtlasError, match="no digit of output may be passed on") as caught:
        require_digits(bundle.client.interface, 1)
    assert "share a decision alone" in caught.value.remedy
    del output.attributes["noise"]
    with pytest.raises(AtlasError, match="nothing is known of the errors"):
        require_digits(bundle.client.interface, 1)
    with pytest.raises(AtlasError, match="protect no key"):
        require_digits(bundle.client.interface, 1, 29)


def test_what_is_shared_is_noisy_and_rounded(bundle: Bundle) -> None:
    flooding = require_digits(bundle.client.interface, 1)
    flood = flooding["output"]
    exact = {"output": np.full((1, 20_000), 0.123456789)}
    shared = share(exact, flooding)["output"]
    assert np.array_equal(shared, np.round(shared, flood.decimals))
    steps = shared * 10**flood.decimals
    assert np.abs(steps - np.round(steps)).max() < 1e-6
    rounding = 10.0**-flood.decimals / math.sqrt(12)
    assert shared.std() == pytest.approx(math.hypot(flood.deviation, rounding), rel=0.05)
    assert not np.array_equal(shared, share(exact, flooding)["output"])


def test_normal_numbers_are_normal_and_never_the_same() -> None:
    from scipy.stats import kstest

    numbers = secure_normal(50_000)
    assert kstest(numbers, "norm").pvalue > 1e-6
    assert np.isfinite(numbers).all()
    assert len(np.unique(np.concatenate([numbers, secure_normal(50_000)]))) == 100_000


@pytest.mark.parametrize("byte", [b"\0", b"\xff"])
def test_normal_numbers_are_finite_for_the_extreme_bits(
    byte: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atlasc.client.sharing.os.urandom", lambda size: byte * size)
    numbers = secure_normal(3)
    assert np.isfinite(numbers).all() and np.abs(numbers).max() == pytest.approx(8.2, abs=0.02)


# --- the command

QUERY = Entry(event="query", query="1" * 32, program="a" * 64, count=1)
ANSWER = QUERY.model_copy(update={"event": "answer", "answer": "c" * 64})


@pytest.fixture
def decrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Answers]:
    """``decrypt`` without a key: its answers are those that the test puts here."""
    there = {"answers": Answers({"output": np.array([[0.1234567, 0.3, -0.2]])}, {})}
    message = SimpleNamespace(entry=ANSWER)
    client = SimpleNamespace(
        ledger=Ledger(tmp_path / "client"), decrypt=lambda *_: there["answers"]
    )
    monkeypatch.setattr(roles, "check_target", lambda *_: find_target("cpu"))
    monkeypatch.setattr(Message, "read", lambda *_: message)
    monkeypatch.setattr(roles, "Client", lambda *_: client)
    (tmp_path / "client").mkdir()
    Ledger(tmp_path / "client").add(QUERY)
    return there


def shared(keys: Path) -> int:
    return (keys / "client" / "ledger.jsonl").read_text().count('"share"')


def decrypt(tiny: Tiny, tmp_path: Path, *options: str) -> tuple[int, str, str]:
    arguments = ["decrypt", tiny.bundle, "--keys", tmp_path, "--answer", tmp_path, *options]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    return result.exit_code, result.stdout, result.stderr


def test_exact_numbers_come_with_a_note(
    tiny: Tiny, tmp_path: Path, decrypted: dict[str, Answers]
) -> None:
    code, out, err = decrypt(tiny, tmp_path, "--json")
    assert (code, "0.1234567" in out) == (0, True)
    assert "for your own use; --share makes some that may be passed on" in err
    assert "own use" not in decrypt(tiny, tmp_path, "--exact")[2]
    assert shared(tmp_path) == 0


def test_shared_numbers_are_rounded_counted_and_then_refused(
    tiny: Tiny, tmp_path: Path, decrypted: dict[str, Answers]
) -> None:
    code, out, err = decrypt(tiny, tmp_path, "--share", "--json")
    assert code == 0, err
    assert "0.1234567" not in out
    assert "output: 2 digits are left and may be passed on, at 30 bits" in err
    assert "answer 1 of 1 that these keys share" in err
    code, out, err = decrypt(tiny, tmp_path, "--share", "--json")
    assert (code, out) == (2, "")
    assert "these keys have shared as many answers as they may" in err


def test_nothing_is_shared_that_no_bound_holds_for(
    tiny: Tiny, tmp_path: Path, decrypted: dict[str, Answers]
) -> None:
    code, out, err = decrypt(tiny, tmp_path, "--share", "--bits", "60")
    assert (code, out) == (2, "")
    assert "no digit of output may be passed on" in err
    assert decrypt(tiny, tmp_path, "--share", "--unchecked")[0] == 2
    two = np.array([[0.1, 0.3, -0.2], [1e8, 0, 0]])
    decrypted["answers"] = Answers({"output": two}, {1: 1 / 3})
    code, out, err = decrypt(tiny, tmp_path, "--share")
    assert (code, out) == (3, "")
    assert shared(tmp_path) == 0
    code, out, err = decrypt(tiny, tmp_path, "--json")
    assert code == 3
    assert '"refused": [\n    1\n  ]' in out
    assert "null" in out
