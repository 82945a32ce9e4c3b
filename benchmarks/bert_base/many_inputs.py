"""What a packing of many inputs would cost: slot = (token, input), one ciphertext for each feature.

    python -m benchmarks.bert_base.many_inputs [--target cpu]   seconds of a text, by kind of op
    python -m benchmarks.bert_base.many_inputs --check          a layer on the simulator, and NumPy

Linear layers multiply ciphertexts by numbers, without a rotation: a matrix product over residues.
Scores and values rotate by whole tokens. The layer is written once, for any engine: on the
simulator it is checked, on a counting engine at the true shape it is counted. Nonlinear functions
and bootstraps are those of today's program: slots are as full as there, so that a text has as many
ciphertexts. docs/many-inputs.md draws the conclusion.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from atlasc.calibration.calibrate import nominal_calibration
from atlasc.cli.output import print_table
from atlasc.latency.model import LatencyTarget
from atlasc.passes.approximation.approximate import apply_recipe
from atlasc.passes.pipeline import lower_nn
from atlasc.program.costs import PrimitiveCosts, program_costs
from atlasc.program.counting_engine import CountingEngine, Counts
from atlasc.program.engine import Engine
from atlasc.program.kinds import kind_of
from atlasc.program.paterson_stockmeyer import evaluate_plan, plan_chebyshev
from atlasc.targets import find_target
from atlasc.targets.sim import SimEngine
from benchmarks.lowering import bert

Ct = TypeVar("Ct")
TURNS = ("rotate", "rotate_hoisted", "hoist", "transform_baby", "transform_giant")
"""Primitives that no nonlinear function needs in this packing: its sums are over ciphertexts."""
CHUNK, H200 = 20, 0.5 * 67e12
"""Bits of a factor of an exact product of doubles: 20 + 20 bits and a sum of 2^12 terms are below
2^53. Operations a second of an H200 in double precision: half of what its maker says."""


@dataclass(frozen=True)
class Shape:
    """A layer of a Transformer encoder."""

    tokens: int
    features: int
    heads: int
    inner: int

    @property
    def weights(self) -> int:
        """Of all linear layers."""
        return 4 * self.features**2 + 2 * self.features * self.inner


BERT = Shape(128, 768, 12, 3072)


@dataclass
class Layer(Generic[Ct]):
    """Attention and linear layers on an engine; every list has a ciphertext for each feature.

    Attributes:
        engine: of ``tokens`` times some inputs slots, the inputs in the low slot bits: a rotation
            by whole tokens is then cyclic, and needs no mask.
        shape: the layer.
        babies: rotations of keys and values that are shared.
    """

    engine: Engine[Ct]
    shape: Shape
    babies: int

    @property
    def _giants(self) -> range:
        return range(0, self.shape.tokens, self.babies)

    def _turned(self, x: Ct, tokens: Sequence[int]) -> list[Ct]:
        inputs = self.engine.slots // self.shape.tokens
        return self.engine.rotate_many(x, [inputs * one for one in tokens])

    def linear(self, xs: Sequence[Ct], weight: np.ndarray) -> list[Ct]:
        """weight [out, in] times the features, for small shapes: one sum for each output."""
        return [self.engine.dot_plain(list(xs), row.tolist()) for row in weight]

    def scores(self, q: Sequence[Ct], k: Sequence[Ct]) -> list[Ct]:
        """For each shift d, the products of all queries with the keys d tokens later."""
        tokens, found = self.shape.tokens, dict[int, Ct]()
        keys = [self._turned(one, range(self.babies)) for one in k]
        back = [self._turned(one, [-giant % tokens for giant in self._giants]) for one in q]
        for number, giant in enumerate(self._giants):
            for baby in range(self.babies):
                some = [one[number] for one in back], [one[baby] for one in keys]
                found[giant + baby] = self._turned(self.engine.dot(*some), [giant])[0]
        return [found[shift] for shift in range(tokens)]

    def values(self, weights: Sequence[Ct], v: Sequence[Ct]) -> list[Ct]:
        """For each feature, the sum over shifts d of weights[d] times the value d tokens later."""
        back = [
            self._turned(one, [-(shift - shift % self.babies) % self.shape.tokens])[0]
            for shift, one in enumerate(weights)
        ]
        found = []
        for one in v:
            turned, total = self._turned(one, range(self.babies)), None
            for giant in self._giants:
                sum_of = self.engine.dot(back[giant : giant + self.babies], turned)
                part = self._turned(sum_of, [giant])[0]
                total = part if total is None else self.engine.add(total, part)
            assert total is not None
            found.append(total)
        return found

    def function(
        self, x: Ct, of: Callable[[Any], Any], domain: tuple[float, float], degree: int
    ) -> Ct:
        """A function of every slot, interpolated on a domain."""
        low, high = domain
        chebyshev = np.polynomial.Chebyshev.interpolate(of, degree, [low, high])
        scaled = self.engine.mul_plain(x, 2 / (high - low))
        scaled = self.engine.add_plain(scaled, -(low + high) / (high - low))
        return evaluate_plan(self.engine, scaled, plan_chebyshev(chebyshev.coef))

    def softmax(self, scores: Sequence[Ct]) -> list[Ct]:
        """Over the shifts; scores lie in [-1, 1]."""
        powers = [self.function(one, np.exp, (-1.0, 1.0), 15) for one in scores]
        total = powers[0]
        for one in powers[1:]:
            total = self.engine.add(total, one)
        ends = len(powers) / np.e, len(powers) * np.e
        inverse = self.function(total, lambda x: 1 / x, ends, 31)
        return [self.engine.mul(one, inverse) for one in powers]

    def norm(self, xs: Sequence[Ct]) -> list[Ct]:
        """LayerNorm without weights; variances lie in [0.05, 4]."""
        total, count = xs[0], len(xs)
        for one in xs[1:]:
            total = self.engine.add(total, one)
        mean = self.engine.mul_plain(total, 1 / count)
        centred = [self.engine.sub(one, mean) for one in xs]
        squares = self.engine.mul_plain(self.engine.dot(centred, centred), 1 / count)
        root = self.function(squares, lambda x: x**-0.5, (0.05, 4.0), 63)
        return [self.engine.mul(one, root) for one in centred]


def check(seed: int = 0) -> float:
    """Greatest error of one small layer on the exact simulator, against NumPy; all nonlinear
    functions are interpolated, which errs by less than 1e-6.
    """
    shape, inputs = Shape(4, 8, 2, 16), 8
    random = np.random.default_rng(seed)
    engine = SimEngine(shape.tokens * inputs, 60)
    layer = Layer(engine, shape, 2)
    x = random.uniform(-1, 1, (shape.tokens, inputs, shape.features))
    sizes = [(shape.features, shape.features)] * 4
    sizes += [(shape.inner, shape.features), (shape.features, shape.inner)]
    q_, k_, v_, o_, up, down = (random.normal(0, 0.3 / size[1] ** 0.5, size) for size in sizes)
    gelu = lambda a: a / (1 + np.exp(-1.702 * a))  # noqa: E731

    xs = [engine.encrypt(x[..., feature].ravel()) for feature in range(shape.features)]
    q, k, v = (layer.linear(xs, weight) for weight in (q_, k_, v_))
    size, mixed = shape.features // shape.heads, []
    for head in range(shape.heads):
        part = slice(head * size, (head + 1) * size)
        mixed += layer.values(layer.softmax(layer.scores(q[part], k[part])), v[part])
    hidden = layer.norm([engine.add(a, b) for a, b in zip(xs, layer.linear(mixed, o_))])
    inner = [layer.function(one, gelu, (-4.0, 4.0), 63) for one in layer.linear(hidden, up)]
    outputs = layer.norm([engine.add(a, b) for a, b in zip(hidden, layer.linear(inner, down))])
    found = np.stack([engine.decrypt(one) for one in outputs], -1).reshape(x.shape)

    def normed(a: np.ndarray) -> np.ndarray:
        centred = a - a.mean(-1, keepdims=True)
        return centred / np.sqrt(np.square(centred).mean(-1, keepdims=True))

    heads = [(x @ w.T).reshape(*x.shape[:2], shape.heads, size) for w in (q_, k_, v_)]
    powers = np.exp(np.einsum("tbhf,sbhf->bhts", heads[0], heads[1]))
    shares = powers / powers.sum(-1, keepdims=True)
    attended = np.einsum("bhts,sbhf->tbhf", shares, heads[2]).reshape(x.shape)
    middle = normed(x + attended @ o_.T)
    expected = normed(middle + gelu(middle @ up.T) @ down.T)
    return float(np.abs(found - expected).max())


def attention_counts(shape: Shape, slots: int, level: int, babies: int) -> Counts:
    """Of scores and values of one layer, for as many inputs as the slots have room for."""
    engine = CountingEngine(slots, level)
    layer, size = Layer(engine, shape, babies), shape.features // shape.heads
    head = [engine.encrypt(None) for _ in range(size)]
    shares = [engine.encrypt(None) for _ in range(shape.tokens)]
    layer.scores(head, head)
    layer.values(shares, head)
    total = engine.total()
    total.primitives = Counter({
        kind: count * shape.heads for kind, count in total.primitives.items()
        if kind[0] != "encrypt"
    })  # fmt: skip
    return total


def operations_a_second() -> float:
    """Of this machine in double precision, by one product of matrices."""
    size = 3000
    a = np.random.default_rng(0).random((size, size))
    started = time.perf_counter()
    a @ a
    return 2 * size**3 / (time.perf_counter() - started)


def linear_seconds(shape: Shape, slots: int, residues: int, bits: int, rate: float) -> float:
    """Of the linear layers of one layer, for a full set of slots.

    Args:
        residues: of a polynomial at the level.
        bits: of a residue, which is cut into chunks of `CHUNK` bits; a weight is one chunk.
        rate: operations a second in double precision.
    """
    chunks = -(-bits // CHUNK)
    return 2.0 * shape.weights * 2 * residues * 2 * slots * chunks / rate


def report(name: str) -> None:
    """Print seconds of a text in one layer, today and in this packing, by kind of op."""
    target = find_target(name)
    latency = LatencyTarget.of(target)
    module = bert(1, BERT.tokens)
    lowered = lower_nn(
        apply_recipe(module, "is", nominal_calibration(module)), latency.choose, None, None,
        latency.costs,
    )  # fmt: skip
    parameters: Any = lowered.parameters
    costs: PrimitiveCosts = latency.costs(parameters)
    counted = program_costs(lowered.program)
    slots, inputs = parameters.slots, parameters.slots // BERT.tokens
    level = parameters.max_level // 2
    today, new = dict[str, float](), dict[str, float]()
    for kind, counts in counted.by(kind_of).items():
        today[kind] = counts.seconds(costs)
        kept = {one: n for one, n in counts.primitives.items() if one[0] not in TURNS}
        new[kind] = Counts(Counter(kept)).seconds(costs)
    options = {
        babies: attention_counts(BERT, slots, level, babies).seconds(costs) / inputs
        for babies in (4, 8, 16, 32)
    }
    babies = min(options, key=lambda one: options[one])
    rate = H200 if parameters.device else operations_a_second()
    residues = parameters.residues(level)
    bits = max(parameters.moduli.primes)
    new["linear"] = linear_seconds(BERT, slots, residues, bits, rate) / inputs
    new["attention scores"], new["attention values"] = options[babies], 0.0
    for texts in (64, 256, 512):
        fill = texts / (-(-texts // inputs) * inputs)
        rows = [(kind, f"{today[kind]:.3g}", f"{new.get(kind, 0.0) / fill:.3g}") for kind in today]
        total = sum(new.values()) / fill
        rows.append(("all", f"{sum(today.values()):.3g}", f"{total:.3g}"))
        print(f"{texts} texts, {fill:.0%} of the slots: seconds of a text in one layer on {name}")
        print_table(("kind", "today", "many inputs"), rows)
    most = BERT.inner + BERT.features
    size = parameters.ciphertext_bytes(level) / 2**30
    print(f"scores and values are one row; {babies} shared rotations; level {level}")
    print(f"{most} ciphertexts at once: {most * size:.0f} GiB")


def main(arguments: Sequence[str] | None = None) -> None:
    """Check the layer, or print the report."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bert_base.many_inputs", description=__doc__
    )
    parser.add_argument("--target", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    if options.check:
        print(f"greatest error of a layer on the simulator: {check():.1e}")
    else:
        report(options.target)


if __name__ == "__main__":
    main()
