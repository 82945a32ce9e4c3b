"""The verdict on an input: what decides, and what does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_model import Tiny

from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.client.verdict import Verdict, verdicts
from atlasc.simulation.agreement import PROMISED
from atlasc.simulation.watch import Excess

BESIDE = Excess("gelu", "blocks.0", 4.5, -1.0, 3.0, decides=False)
BEYOND = Excess("bootstrap", "blocks.1", 1.2, -1.0, 1.0)


def test_reasons_in_their_order() -> None:
    assert Verdict("a").safe and Verdict("a", (BESIDE,), "", 0.1, 0.2).safe
    assert Verdict("a", (BEYOND,), "too large").why == "too large"
    assert Verdict("a", (BESIDE, BEYOND), "", 0.1, 0.2).why == str(BEYOND)
    wrong = Verdict("a", (BESIDE,), "", 0.3, 0.2)
    assert wrong.why == f"its answer errs by 0.3; the program promises 0.2; {BESIDE}"
    assert not Verdict("a", (), "", np.inf, 0.2).safe
    assert not Verdict("a", (), "", np.nan, 0.2).safe


@pytest.fixture
def promising(tiny: Tiny) -> Bundle:
    bundle = load_bundle(Path(tiny.bundle))
    bundle.poly.attributes[PROMISED] = 0.0
    return bundle


def test_the_error_of_the_answer_decides(tiny: Tiny, promising: Bundle) -> None:
    """Brighter and brighter images leave a range long before their answers are wrong."""
    image = promising.load_inputs(tiny.data).arrays["pixel_values"][:1]
    factors = np.geomspace(1.0, 30.0, 12, dtype=np.float32).reshape(-1, 1, 1, 1)
    arrays = {"pixel_values": image * factors}
    errors = [one.error for one in verdicts(promising.client, promising.poly, arrays)]
    promising.poly.attributes[PROMISED] = 3 * errors[0]
    found = verdicts(promising.client, promising.poly, arrays)
    assert [one.safe for one in found] == [error <= 3 * errors[0] for error in errors]
    assert any(one.safe and one.excesses for one in found)
    assert not found[-1].safe and found[-1].why.startswith("its answer errs by")
