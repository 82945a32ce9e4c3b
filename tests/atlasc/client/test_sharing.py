"""Numbers that may be passed on: how much noise, how many digits, how often."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_model import Tiny
from typer.testing import CliRunner

from atlasc.api import roles
from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.cli import app
from atlasc.client.sharing import BITS, floods, require_digits, safe_digits
from atlasc.ir.errors import AtlasError
from atlasc.runtime.native import load_library
from tests.atlasc.client.interfaces import change


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
    norm = output.noise * math.sqrt(3 * count)
    assert flood.deviation == pytest.approx(math.sqrt(12 * shares) * 2 ** (bits / 2) * norm)
    divergence = shares * norm**2 / (2 * flood.deviation**2)
    assert divergence == pytest.approx(2.0**-bits / 24)


def test_digits_are_those_above_the_noise(bundle: Bundle) -> None:
    (output,) = bundle.client.interface.outputs
    assert 0.1 < output.magnitude < 1
    for noise, digits in ((1e-6, 0), (1e-8, 2), (1e-9, 3)):
        change(bundle, "outputs", noise=noise)
        flood = floods(bundle.client.interface, 1)["output"]
        assert flood.digits == digits == safe_digits(bundle.client.interface)
        assert 10.0 ** -(flood.decimals + 1) < flood.deviation <= 10.0**-flood.decimals


def test_an_output_without_a_digit_is_refused_before_it_is_decrypted(bundle: Bundle) -> None:
    change(bundle, "outputs", noise=2.0**-18)
    with pytest.raises(AtlasError, match="no digit of output may be passed on") as caught:
        require_digits(bundle.client.interface, 1)
    assert "share a decision alone" in caught.value.remedy
    change(bundle, "outputs", noise=None)
    with pytest.raises(AtlasError, match="nothing is known of the errors"):
        require_digits(bundle.client.interface, 1)
    with pytest.raises(AtlasError, match="protect no key"):
        require_digits(bundle.client.interface, 1, 29)


def test_a_bound_that_is_no_positive_number_is_none(bundle: Bundle) -> None:
    """Programs come from files; nothing in one makes the noise small, endless or no number."""
    (output,) = bundle.client.interface.outputs
    known = {"noise": output.noise, "magnitude": output.magnitude}
    for name in ("noise", "magnitude"):
        for value in (-1.0, float("nan"), float("inf"), 1e300, *[0.0, 5e-324] * (name == "noise")):
            change(bundle, "outputs", **known | {name: value})
            assert floods(bundle.client.interface, 1) == {}, (name, value)
            assert safe_digits(bundle.client.interface) is None
            with pytest.raises(AtlasError, match="nothing is known of the errors"):
                require_digits(bundle.client.interface, 1)
    change(bundle, "outputs", magnitude=0.0)
    assert safe_digits(bundle.client.interface) == 0
    change(bundle, "outputs", **known)
    for bits, shares in ((5_000, 1), (2**40, 1), (30, 2**62)):
        with pytest.raises(AtlasError, match="no digit of output may be passed on"):
            require_digits(bundle.client.interface, 1, bits, shares)


def test_what_is_shared_is_noisy_and_rounded(bundle: Bundle) -> None:
    flooding = require_digits(bundle.client.interface, 1)
    flood = flooding["output"]
    # Rounding is an error of its own where answers differ by more than its step.
    exact = {"output": np.random.default_rng(0).uniform(-3, 3, (1, 20_000))}
    shared = load_library().flooded(exact, flooding)["output"]
    assert np.array_equal(shared, np.round(shared, flood.decimals))
    steps = shared * 10**flood.decimals
    assert np.abs(steps - np.round(steps)).max() < 1e-6
    rounding = 10.0**-flood.decimals / math.sqrt(12)
    off = (shared - exact["output"]).std()
    assert off == pytest.approx(math.hypot(flood.deviation, rounding), rel=0.05)
    assert not np.array_equal(shared, load_library().flooded(exact, flooding)["output"])


def test_rounding_is_that_of_numpy() -> None:
    rounded, rng = load_library().rounded, np.random.default_rng(0)
    halves = [0.5, 1.5, 2.5, -0.5, 0.25, 0.15, 2.675, 12.5, 15.0, 25.0, 250.0, 1e200, -0.0]
    numbers = [*halves, *(rng.standard_normal(200) * 10.0 ** rng.integers(-6, 7, 200))]
    for decimals in (-5, -2, -1, 0, 1, 2, 6, 15):
        found = [rounded(number, decimals) for number in numbers]
        assert found == np.round(numbers, decimals).tolist(), decimals


def test_normal_numbers_are_normal_and_never_the_same() -> None:
    from scipy.stats import binomtest, kstest, norm

    numbers = load_library().secure_normal(400_000)
    assert kstest(numbers, "norm").pvalue > 1e-6
    assert kstest(np.square(numbers), "chi2", args=(1,)).pvalue > 1e-6
    for tail in (1.0, 2.0, 3.0, 4.0):
        for side in (numbers > tail, numbers < -tail):
            assert binomtest(int(side.sum()), len(numbers), norm.sf(tail)).pvalue > 1e-6, tail
    assert np.abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 6 / math.sqrt(len(numbers))
    assert np.isfinite(numbers).all()
    assert len(np.unique(numbers)) == len(numbers)


def test_normal_numbers_are_the_transform_of_their_bits() -> None:
    """Box and Muller's, in 50 digits; for bits that are all alike too, which reach the tails."""
    from mpmath import mp

    words = [
        0,
        2**64 - 1,
        2**63,
        2**62,
        *map(int, np.random.default_rng(0).integers(2**63, size=20)),
    ]
    with mp.workdps(50):
        for first in words:
            for second in words:
                u, v = (((word >> 12) + mp.mpf(0.5)) / mp.mpf(2) ** 52 for word in (first, second))
                radius = mp.sqrt(-2 * mp.log(u))
                found = load_library().normal_number(first, second)
                assert abs(found - radius * mp.cos(2 * mp.pi * v)) < 4e-15 * radius
    assert load_library().normal_number(0, 0) == pytest.approx(math.sqrt(106 * math.log(2)))
    assert load_library().normal_number(0, 2**63) == pytest.approx(-math.sqrt(106 * math.log(2)))


def test_the_least_bits_are_those_of_the_library() -> None:
    assert load_library().LEAST_BITS == BITS


# --- the client and its command


@pytest.fixture
def keys(tiny: Tiny, tmp_path: Path) -> Path:
    roles.keygen(tiny.bundle, tmp_path / "keys")
    return tmp_path / "keys"


def answered(tiny: Tiny, keys: Path, count: int = 1, **more: Any) -> Path:
    """The answer to the first images, from the simulator."""
    bundle = load_bundle(tiny.bundle)
    arrays = bundle.load_inputs(tiny.data).take(range(count)).arrays
    arrays["pixel_values"] *= np.float32(more.pop("factor", 1.0))
    query = roles.Client(bundle, keys).query(arrays, **more)
    place = keys.parent / f"{query.query}.answer"
    place.write_bytes(roles.Server(bundle, keys).execute(query.to_bytes()))
    return place


def events(keys: Path) -> list[str]:
    lines = (keys / "client" / "ledger.jsonl").read_text().splitlines()
    return [json.loads(line)["event"] for line in lines]


def decrypt(tiny: Tiny, keys: Path, answer: Path, *options: str) -> tuple[int, str, str]:
    arguments = ["decrypt", tiny.bundle, "--keys", keys, "--answer", answer, *options]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    return result.exit_code, result.stdout, result.stderr


def test_exact_numbers_come_with_a_note(tiny: Tiny, keys: Path, tmp_path: Path) -> None:
    answer, place = answered(tiny, keys), tmp_path / "exact.npz"
    code, _, err = decrypt(tiny, keys, answer, "-o", str(place))
    assert code == 0
    assert place.stat().st_mode & 0o777 == 0o600
    assert "for your own use; decrypt with --share to pass numbers on" in err
    assert "own use" not in decrypt(tiny, keys, answer, "--exact")[2]
    assert events(keys) == ["query", "answer"]


def test_shared_numbers_are_rounded_counted_and_then_refused(tiny: Tiny, keys: Path) -> None:
    answer = answered(tiny, keys)
    exact = json.loads(decrypt(tiny, keys, answer, "--json")[1])["outputs"]["output"][0]
    code, out, err = decrypt(tiny, keys, answer, "--share", "--json")
    assert code == 0, err
    found = json.loads(out)["outputs"]["output"][0]
    assert found == [round(value, 1) for value in found] != exact
    assert "output: 1 digit is left and may be passed on, at 30 bits" in err
    assert "answer 1 of 1 that these keys share" in err
    code, out, err = decrypt(tiny, keys, answer, "--share", "--json")
    assert (code, out) == (2, "")
    assert "these keys have shared as many answers as they may" in err
    assert events(keys) == ["query", "answer", "share"]


def test_nothing_is_shared_that_no_bound_holds_for(tiny: Tiny, keys: Path) -> None:
    answer = answered(tiny, keys)
    code, out, err = decrypt(tiny, keys, answer, "--share", "--bits", "60")
    assert (code, out) == (2, "")
    assert "no digit of output may be passed on" in err
    assert decrypt(tiny, keys, answer, "--share", "--unchecked")[0] == 2
    assert events(keys) == ["query"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"factor": 1.6}, "input 0: it reaches 1.3"),
        ({"factor": 5.0, "unchecked": True}, "input 0: it reaches"),
        ({"doubt": "images.npz[0]: it leaves a range"}, "images.npz[0]: it leaves a range"),
    ],
)
def test_a_query_that_the_client_doubted_is_not_shared(
    tiny: Tiny, keys: Path, more: dict[str, Any], why: str
) -> None:
    """Neither by the command nor from Python; nothing is decrypted for it."""
    answer = answered(tiny, keys, **more)
    code, out, err = decrypt(tiny, keys, answer, "--share")
    assert (code, out) == (2, "")
    assert "is not shared" in err and why in err
    with pytest.raises(AtlasError, match="is not shared"):
        roles.Client(tiny.bundle, keys).share(answer.read_bytes())
    assert events(keys) == ["query"]


def test_what_admission_doubts_is_noted(tiny: Tiny, keys: Path, tmp_path: Path) -> None:
    """An image of constants may be no larger than the others, and leave a range all the same."""
    for images, options, doubted in (
        (np.full((1, 1, 8, 8), -2.9, np.float32), ("--unchecked",), True),
        (np.full((1, 1, 8, 8), 0.5, np.float32), (), False),
    ):
        np.savez(tmp_path / "odd.npz", pixel_values=images)
        words = ("--input", tmp_path / "odd.npz", "-o", tmp_path / f"query {doubted}", *options)
        arguments = ["encrypt", tiny.bundle, "--keys", keys, *words]
        result = CliRunner().invoke(app, list(map(str, arguments)))
        assert result.exit_code == 0, result.stderr
        line = (keys / "client" / "ledger.jsonl").read_text().splitlines()[-1]
        assert json.loads(line)["doubt"].startswith("odd.npz[0]: ") == doubted


def test_refused_answers_are_counted_and_nothing_of_them_is_shared(
    tiny: Tiny, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger knows before anything is said."""
    whole, sent = answered(tiny, keys, 2), answered(tiny, keys, 2)

    def exploded(*_: object) -> dict[str, np.ndarray]:
        return {"output": np.full((1, 16384), 1e8)}

    monkeypatch.setattr(roles, "decrypt_all", exploded)
    code, out, err = decrypt(tiny, keys, whole, "--share")
    assert (code, out) == (3, "")
    assert f"1 of {16} refused answers that these keys allow" in err
    assert events(keys)[2:] == ["answer", "refused"]
    code, out, _ = decrypt(tiny, keys, whole, "--json")
    assert code == 3 and json.loads(out)["refused"] == [0, 1]
    assert events(keys)[2:] == ["answer", "refused"]

    def broken(*_: object) -> dict[str, np.ndarray]:
        raise AtlasError("a ciphertext does not decrypt to anything")

    monkeypatch.setattr(roles, "decrypt_all", broken)
    assert decrypt(tiny, keys, sent)[0] == 2
    assert events(keys)[4:] == ["answer", "refused"]


def test_too_little_memory_is_no_refusal(
    tiny: Tiny, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells nothing of the answer, which may be decrypted and shared later."""
    answer = answered(tiny, keys)

    def short(*_: object) -> dict[str, np.ndarray]:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(roles, "decrypt_all", short)
        with pytest.raises(AtlasError, match="not enough memory"):
            roles.Client(tiny.bundle, keys).decrypt(answer)
    assert roles.Client(tiny.bundle, keys).share(answer).number == 1
    assert events(keys) == ["query", "answer", "share"]


def test_several_threads_decrypt(tiny: Tiny, keys: Path) -> None:
    """One after the other, as each holds the ledger; none waits for ever."""
    client, places = roles.Client(tiny.bundle, keys), [answered(tiny, keys) for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(client.decrypt, places * 4, timeout=60))
    for one in found:
        np.testing.assert_allclose(one.outputs["output"], found[0].outputs["output"])
    assert sorted(events(keys)) == ["answer"] * 4 + ["query"] * 4
