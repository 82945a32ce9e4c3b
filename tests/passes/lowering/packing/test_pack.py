"""pack: IR text in, IR text out; what has no packed form is refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from packed import pack_tensor, run_packed
from short_text import ATTENTION, MERGE, SPLIT, dedent, entry, module_of, poly, short

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.passes.framework.pass_base import Report, run_passes
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.packing.geometry import Packing, choose_packing, least_slots
from atlasc.program.costs import critical_path
from atlasc.program.execute import execute
from atlasc.targets.sim import SimEngine

RANDOM = np.random.default_rng(0)
ARRAYS = {
    "w": 0.2 * RANDOM.normal(size=(6, 6)),
    "w5": RANDOM.normal(size=(5, 6)),
    "head": RANDOM.normal(size=(3, 3)),
    "bias": RANDOM.normal(size=6),
    "token": RANDOM.normal(size=(3, 1)),
    "scores": RANDOM.normal(size=(2, 3, 3)),
    "vector": RANDOM.normal(size=3),
    "c": RANDOM.normal(size=64),
}
X = {"x": RANDOM.normal(size=(1, 3, 6)), "mask": np.array([[1.0, 1, 0]])}
HIDDEN = "[b:1 d:2 g:1 t:2 |  | b=1 t=3 g=2 d=3]"
SCORES = "[b:1 s:2 g:1 t:2 |  | b=1 g=2 s=4 t=3]"


def program(body: str) -> Module:
    return poly(body, ARRAYS, (1, 3, 6))


def packed(module: Module, slots: int) -> Module:
    """The packed module; on the simulator it means what the poly module means."""
    after = run_passes(module, [Pack(slots)])
    inputs = {op.attributes["name"]: X[op.attributes["name"]] for op in module.inputs}
    wanted = interpret(module, inputs)
    result = run_packed(after, inputs, SimEngine(slots, critical_path(after).total))
    for name, array in wanted.items():
        np.testing.assert_allclose(result[name], array, atol=1e-9)
    return after


def test_attention() -> None:
    """Splitting and merging heads moves nothing; the mask goes into the product q·kᵀ."""
    module = module_of("poly", f"""{entry("x", (1, 3, 6))}
        {entry("mask", (1, 3), "public")}
        %q = poly.linear %x {{weight = @w, bias = @bias}} loc "layer.0.query"
        %h = poly.reshape %q {{shape = [1, 3, 2, 3]}}
        %t = poly.transpose %h {{permutation = [0, 2, 1, 3]}}
        %s = poly.matmul %t, %t {{transpose_b = true}} loc "layer.0"
        %f = poly.mask_fill %s, %mask {{causal = true, fill = -1.0}}
        %e = poly.chebyshev %f {{coefficients = [1.0, 0.5, 0.25], domain = [-1.0, 1.0]}}
        %z = poly.mask_zero %e, %mask {{causal = true, value = 0.75}}
        %u = poly.row_sum %z
        %p = poly.mul %z, %u
        %o = poly.matmul %p, %t {{transpose_b = false}}
        %v = poly.transpose %o {{permutation = [0, 2, 1, 3]}}
        %y = poly.reshape %v {{shape = [1, 3, 6]}}
        %a = poly.add %y, %x
        poly.output %a {{name = "y"}}""", ARRAYS)  # fmt: skip
    after = packed(module, 64)
    assert short(after) == dedent(f"""
        %0 = ckks.linear_transform %x {{weight = @w, bias = @bias, baby_steps = 2, paired = true, layout = "{HIDDEN}"}} loc "layer.0.query"
        %1 = ckks.ct_matmul_qk %0, %0, %mask {{causal = true, fill = -1.0, layout = "{SCORES}"}} loc "layer.0"
        %2 = ckks.chebyshev %1 {{coefficients = [1.0, 0.5, 0.25]}}
        %3 = ckks.mask_zero %2, %mask {{causal = true, value = 0.75}}
        %4 = ckks.rotate_sum %3 {{axes = ["s"]}}
        %5 = ckks.mul %3, %4
        %6 = ckks.ct_matmul_pv %5, %0 {{layout = "{HIDDEN}"}}
        %7 = ckks.add %6, %x
        ckks.output %7 {{name = "y", shape = [1, 3, 6]}}""")  # noqa: E501
    assert after.attributes == {"slots": 64, "batch_capacity": 2}
    assert str(after.ops[4].value.type) == f"ciphertext<{SCORES}, level ?, scale 1>"


def test_features_in_the_low_bits() -> None:
    """A sum over features is right at feature 0 alone, so it is masked and copied; a sum over
    tokens wraps around.
    """
    module = module_of("poly", f"""{entry("x", (1, 3, 6))}
        %r = poly.row_sum %x
        %c = poly.mul %x, %r
        %l = poly.linear %c {{weight = @w}} loc "layer.0"
        %m = poly.mean %l {{axis = 1}}
        poly.output %m {{name = "y"}}""", ARRAYS)  # fmt: skip
    after = run_passes(module, [Pack(64, features_low=True)])
    hidden, sums = "[t:2 b:1 d:3 g:0 |  | b=1 t=3 g=1 d=6]", "[t:2 b:1 *:3 *:0 |  | b=1 t=3]"
    assert short(after) == dedent(f"""
        %0 = ckks.rotate_sum %x {{axes = ["d", "g"]}}
        %1 = ckks.mul_plain %0 {{value = 1.0, only_first = true}}
        %2 = ckks.replicate %1 {{layout = "{sums}"}}
        %3 = ckks.mul %x, %2
        %4 = ckks.linear_transform %3 {{weight = @w, baby_steps = 8, paired = false, layout = "{hidden}"}} loc "layer.0"
        %5 = ckks.mul_plain %4 {{value = 0.3333333333333333, zero_padding = true}}
        %6 = ckks.rotate_sum %5 {{axes = ["t"]}}
        ckks.output %6 {{name = "y", shape = [1, 6]}}""")  # noqa: E501
    assert str(after.ops[1].value.type).startswith("ciphertext<[t:2 b:1 ?:3 ?:0 |  | b=1 t=3]")
    assert str(after.ops[7].value.type).startswith("ciphertext<[*:2 b:1 d:3 g:0 |  | b=1 g=1 d=6]")


def test_a_number_is_added_to_features_alone() -> None:
    """Then the padding adds nothing to the mean, and a polynomial sees the middle of its domain."""
    after = packed(program("""%a = poly.add_constant %x {value = 1.5}
        %c = poly.center %a
        %l = poly.linear %c {weight = @w5}
        %b = poly.add_constant %l {value = 0.5}
        %e = poly.chebyshev %b {coefficients = [1.0, 0.5], domain = [-1.0, 1.0]}
        poly.output %e {name = "y"}"""), 64)  # fmt: skip
    assert short(after) == dedent("""
        %0 = ckks.add_plain %x {value = @spread}
        %1 = ckks.rotate_sum %0 {axes = ["d", "g"]}
        %2 = ckks.mul_plain %1 {value = @spread.1, layout = "[d:3 g:1 b:0 t:2 |  | b=1 t=3 g=2 d=5]"}
        %3 = ckks.sub %0, %2
        %4 = ckks.linear_transform %3 {weight = @w5, baby_steps = 2, paired = true, layout = "[d:3 g:1 b:0 t:2 |  | b=1 t=3 g=1 d=5]"}
        %5 = ckks.add_plain %4 {value = @spread.2}
        %6 = ckks.chebyshev %5 {coefficients = [1.0, 0.5]}
        ckks.output %6 {name = "y", shape = [1, 3, 5]}""")  # noqa: E501
    assert after.symbols["spread"].tolist() == [1.5] * 6 + [0.0] * 4


def test_a_polynomial_is_masked_before_a_sum_over_features() -> None:
    module = program("""%e = poly.chebyshev %x {coefficients = [1.0, 0.5], domain = [-1.0, 1.0]}
        %l = poly.linear %e {weight = @w5}
        %r = poly.row_sum %l
        %s = poly.row_sum %e
        %p = poly.mul %e, %s
        %q = poly.mul %p, %r
        poly.output %q {name = "y"}""")
    names = [op.name for op in packed(module, 64).ops]
    assert names.count("ckks.mul_plain") == 1  # for %s; the linear layer before %r leaves zeros
    report = Report()
    Pack(64).run(module, report)
    assert report.lines[-1] == "poly.row_sum at  masks the padding of 6 features"


def test_a_selected_token_is_copied_before_a_polynomial() -> None:
    """Other tokens would leave the range of a polynomial that was fitted to the first alone."""
    module = program("""%s = poly.select %x {axis = 1, index = 2}
        %l = poly.linear %s {weight = @w5}
        %b = poly.add_constant %l {value = 0.0625}
        %e = poly.chebyshev %b {coefficients = [1.0, 0.5], domain = [-1.0, 1.0]}
        poly.output %e {name = "y"}
        poly.output %b {name = "z"}""")
    after = packed(module, 64)
    assert short(after) == dedent("""
        %0 = ckks.select %x {layout_axis = "t", index = 2}
        %1 = ckks.linear_transform %0 {weight = @w5, baby_steps = 2, paired = true, layout = "[d:3 g:1 b:0 ?:2 |  | b=1 g=1 d=5]"}
        %2 = ckks.add_plain %1 {value = @spread}
        %3 = ckks.linear_transform %0 {weight = @w5, baby_steps = 2, paired = true, layout = "[d:3 g:1 b:0 ?:2 |  | b=1 g=1 d=5]", only_first = true}
        %4 = ckks.replicate %3 {layout = "[d:3 g:1 b:0 *:2 |  | b=1 g=1 d=5]"}
        %5 = ckks.add_plain %4 {value = @spread}
        %6 = ckks.chebyshev %5 {coefficients = [1.0, 0.5]}
        ckks.output %6 {name = "y", shape = [1, 5]}
        ckks.output %2 {name = "z", shape = [1, 5]}""")  # noqa: E501


def test_padding_stays_in_the_middle_of_a_far_domain() -> None:
    """The shift of a domain map is not added to padding, where T₆₃(−10) would be 10⁸¹."""
    body = """%l = poly.linear %x {weight = @small}
        %a = poly.add_constant %l {value = -10.0}
        %b = poly.add_constant %a {value = 10.0}
        %e = poly.chebyshev %b {coefficients = @c, domain = [-1.0, 1.0]}
        poly.output %e {name = "y"}"""
    module = poly(body, {**ARRAYS, "small": ARRAYS["w5"] / 20}, (1, 3, 6))
    after = run_passes(module, [Pack(64)])
    largest = []
    engine = SimEngine(64, critical_path(after).total)
    layout = after.ops[0].attributes["layout"]
    vectors = [engine.encrypt(vector) for vector in pack_tensor(layout, X["x"])]
    execute(engine, after, {"x": vectors}, observe=lambda op, cts: largest.append(
        max(np.abs(engine.decrypt(ct)).max() for ct in cts)))  # fmt: skip
    assert max(largest) < 50


def test_scores_of_padding_heads_copy_a_real_head() -> None:
    """Six features in blocks of two are three heads; the fourth place is padding."""
    body = """%q = poly.linear %x {weight = @w}
        %b = poly.add_constant %q {value = @bias}
        %h = poly.reshape %b {shape = [1, 3, 3, 2]}
        %t = poly.transpose %h {permutation = [0, 2, 1, 3]}
        %s = poly.matmul %t, %t {transpose_b = true}
        %f = poly.mask_fill %s {fill = -1.0}
        %o = poly.matmul %f, %t {transpose_b = false}
        %v = poly.transpose %o {permutation = [0, 2, 1, 3]}
        %y = poly.reshape %v {shape = [1, 3, 6]}
        %r = poly.row_sum %b
        %z = poly.mul %y, %r
        poly.output %z {name = "y"}"""
    after = packed(program(body), 64)
    copied = [op.name for op in after.ops if op.attributes.get("copy_padding")]
    assert copied.count("ckks.linear_transform") == 1  # the queries are the keys
    assert copied.count("ckks.add_plain") == 1
    plain = [op for op in after.ops if op.name == "ckks.linear_transform"]
    assert len(plain) == 2  # the row sum needs padding that is 0


def test_a_rotary_embedding_goes_into_the_linear_layer() -> None:
    arrays = {**ARRAYS, "cos": RANDOM.normal(size=(3, 2)), "sin": RANDOM.normal(size=(3, 2))}
    body = """%q = poly.linear %x {weight = @w, bias = @bias}
        %h = poly.reshape %q {shape = [1, 3, 3, 2]}
        %t = poly.transpose %h {permutation = [0, 2, 1, 3]}
        %u = poly.rotary %t {cos = @cos, sin = @sin}
        %s = poly.matmul %u, %u {transpose_b = true}
        %f = poly.mask_fill %s {fill = -1.0}
        %o = poly.matmul %f, %t {transpose_b = false}
        %v = poly.transpose %o {permutation = [0, 2, 1, 3]}
        %y = poly.reshape %v {shape = [1, 3, 6]}
        poly.output %y {name = "y"}"""
    after = run_passes(poly(body, arrays, (1, 3, 6)), [Pack(64, features_low=True)])
    turned = [op for op in after.ops if op.name == "ckks.rotary"]
    assert {op.operands[0].op.name for op in turned} == {"ckks.linear_transform"}
    assert all(op.operands[0].op.attributes["copy_padding"] for op in turned)
    assert not any("cos" in op.attributes for op in after.ops if op not in turned)
    after = packed(poly(body, arrays, (1, 3, 6)), 64)
    transforms = [op for op in after.ops if op.name == "ckks.linear_transform"]
    assert ["cos" in op.attributes for op in transforms].count(False) == 1  # of the values
    missing = body.replace("%q = poly.linear %x {weight = @w, bias = @bias}\n", "").replace(
        "%q", "%x"
    )
    with pytest.raises(AtlasError, match="must come from a linear layer"):
        run_passes(poly(missing, arrays, (1, 3, 6)), [Pack(64)])


@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize("shape", [(2, 1, 1), (2, 1, 3), (1,), (3,), (3, 1), (1, 2, 3, 3)])
@pytest.mark.parametrize("even", [False, True])
def test_a_product_of_heads_with_a_constant(even: bool, shape: tuple[int, ...], low: bool) -> None:
    factor = np.full(shape, 1.5) if even else RANDOM.normal(size=shape)
    body = f"""{SPLIT}
        %n = poly.scale %t {{factor = @factor}}
        %s = poly.matmul %n, %t {{transpose_b = true}}
        %f = poly.mask_fill %s {{causal = true, fill = -1.0}}
        %e = poly.chebyshev %f {{coefficients = [1.0, 0.5, 0.25], domain = [-1.0, 1.0]}}
        %z = poly.mask_zero %e {{causal = true, value = 0.75}}
        %o = poly.matmul %z, %n {{transpose_b = false}}
        {MERGE}"""
    module = poly(body, {**ARRAYS, "factor": factor}, (1, 3, 6))
    after = run_passes(module, [Pack(64, features_low=low)])
    found = run_packed(after, X, SimEngine(64, critical_path(after).total))["y"]
    np.testing.assert_allclose(found, interpret(module, X)["y"], atol=1e-9)


def test_a_norm_of_heads_sums_over_each_head() -> None:
    """The sums of padding heads are those of a real head; 1 / root of 0 would leave its range."""
    body = """%q = poly.linear %x {weight = @w}
        %h = poly.reshape %q {shape = [1, 3, 3, 2]}
        %r = poly.row_sum %h
        %n = poly.mul %h, %r
        %t = poly.transpose %n {permutation = [0, 2, 1, 3]}
        %g = poly.scale %t {factor = @pair}
        %s = poly.matmul %g, %g {transpose_b = true}
        %f = poly.mask_fill %s {fill = -1.0}
        %p = poly.mask_zero %f {value = -1.0}
        %o = poly.matmul %p, %t {transpose_b = false}
        %v = poly.transpose %o {permutation = [0, 2, 1, 3]}
        %y = poly.reshape %v {shape = [1, 3, 6]}
        poly.output %y {name = "y"}"""
    arrays = {**ARRAYS, "pair": np.array([0.5, 2.0])}
    for low in (False, True):
        module = poly(body, arrays, (1, 3, 6))
        after = run_passes(module, [Pack(64, low)])
        (total,) = (op for op in after.ops if op.name == "ckks.rotate_sum")
        assert total.attributes["axes"] == ["d"]
        assert total.operands[0].op.attributes["copy_padding"] is True
        result = run_packed(after, X, SimEngine(64, critical_path(after).total))["y"]
        np.testing.assert_allclose(result, interpret(module, X)["y"], atol=1e-9)


@pytest.mark.parametrize("slots", [0, -8, 48, 16])
def test_slots(slots: int) -> None:
    with pytest.raises(AtlasError) as caught:
        run_passes(program('poly.output %x {name = "y"}'), [Pack(slots)])
    error = caught.value
    assert ("2^5 slots, but a ciphertext has 16" if slots == 16 else "power of two") in error.what


def test_shared_geometry() -> None:
    """Blocks are as wide as a head, else as the narrowest layer; spare slots take more inputs."""
    module = program(ATTENTION)
    assert choose_packing(module, 64) == Packing(3, d=2, g=1, b=1, t=2, copies_first=True)
    assert choose_packing(module, 16) == Packing(3, d=2, g=0, b=0, t=2)
    assert choose_packing(module, 1024) == Packing(3, d=2, g=1, b=5, t=2, copies_first=True)
    assert least_slots(module) == 16
    plain = program('%y = poly.linear %x {weight = @w5}\npoly.output %y {name = "y"}')
    assert choose_packing(plain, 1024) == Packing(5, d=3, g=1, b=4, t=2, copies_first=True)
    vector = poly('%y = poly.linear %x {weight = @w5}\npoly.output %y {name = "y"}', ARRAYS, (4, 6))
    assert choose_packing(vector, 64) == Packing(5, d=3, g=1, b=2, t=0)


def test_inputs_that_cannot_be_packed() -> None:
    module = poly('poly.output %x {name = "y"}', {}, (1, 2, 3, 4))
    with pytest.raises(AtlasError, match="poly.input has no packed form"):
        run_passes(module, [Pack(64)])
