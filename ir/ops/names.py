"""The names of all ops, and their attributes, as types, so that mypy and editors know them.

``make docs`` writes this file from the declarations.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

from atlasc.ir.approximation import ApproximationAttribute
from atlasc.ir.layout import Layout
from atlasc.ir.opdef import Symbol

OpName: TypeAlias = Literal[
    "nn.encrypt",
    "nn.embedding",
    "nn.position_ids",
    "nn.fill_padding",
    "nn.zero_padding",
    "nn.softmax",
    "nn.layer_norm",
    "nn.rms_norm",
    "nn.gelu",
    "nn.gelu_tanh",
    "nn.silu",
    "nn.quick_gelu",
    "nn.mish",
    "nn.softplus",
    "nn.elu",
    "nn.sigmoid",
    "nn.tanh",
    "nn.relu",
    "nn.relu_squared",
    "nn.clip",
    "nn.selu",
    "nn.softsign",
    "nn.input",
    "nn.output",
    "nn.linear",
    "nn.add",
    "nn.add_constant",
    "nn.mul",
    "nn.scale",
    "nn.matmul",
    "nn.transpose",
    "nn.reshape",
    "nn.select",
    "nn.mean",
    "nn.center",
    "nn.add_positions",
    "nn.repeat",
    "nn.at_tokens",
    "nn.rotary",
    "nn.convolution",
    "nn.gather",
    "poly.square",
    "poly.sub",
    "poly.affine",
    "poly.double",
    "poly.row_sum",
    "poly.mask_fill",
    "poly.mask_zero",
    "poly.chebyshev",
    "poly.input",
    "poly.output",
    "poly.linear",
    "poly.add",
    "poly.add_constant",
    "poly.mul",
    "poly.scale",
    "poly.matmul",
    "poly.transpose",
    "poly.reshape",
    "poly.select",
    "poly.mean",
    "poly.center",
    "poly.add_positions",
    "poly.repeat",
    "poly.at_tokens",
    "poly.rotary",
    "ckks.input",
    "ckks.result",
    "ckks.public_input",
    "ckks.output",
    "ckks.add",
    "ckks.sub",
    "ckks.double",
    "ckks.add_plain",
    "ckks.mul",
    "ckks.square",
    "ckks.mul_plain",
    "ckks.chebyshev",
    "ckks.rotate_sum",
    "ckks.select",
    "ckks.replicate",
    "ckks.gather",
    "ckks.spread",
    "ckks.bootstrap",
    "ckks.drop",
    "ckks.ct_matmul_qk",
    "ckks.mask_fill",
    "ckks.mask_zero",
    "ckks.ct_matmul_pv",
    "ckks.at_tokens",
    "ckks.row_scores",
    "ckks.row_context",
    "ckks.linear_transform",
    "ckks.rotary",
]


class Attributes(TypedDict, total=False):
    """The attributes of ops. The declaration of an op says which of them it takes."""

    # polynomials that replace the function
    approximation: ApproximationAttribute
    # axes that are summed
    axes: list[str]
    # from 0; from 1
    axis: int
    # rotations of the operand
    baby_steps: int
    # what its range rests on: measured, certified (it holds for every input), published, nominal
    basis: str
    # [features]
    beta: Symbol
    # added to visible scores, broadcast to [heads, queries, keys]; [out]
    bias: Symbol
    # zeros before and after each axis, in pairs
    border: list[int]
    # magnitude that the result may not exceed, because it is bootstrapped
    bound: float
    # a query sees no later key
    causal: bool
    # the client subtracts the mean of the last axis
    centred: bool
    # [degree + 1] or [channels, degree + 1], T₀ first; [degree + 1] or [features, degree + 1], T₀
    # first
    coefficients: Symbol | list[float]
    # copies of the operand that share the sum, for one level more; diagonals that one product
    # computes in the copies of a row; more than 1 take a level
    copies: int
    # padding blocks copy block 0 (else they are zero)
    copy_padding: bool
    # [n, d]; rotary table [n, d]
    cos: Symbol
    # step between the elements under the kernel, along each axis
    dilation: list[int]
    # [low, high], mapped to (−1, 1)
    domain: list[float]
    # f64 or i64
    dtype: str
    # their numbers
    elements: list[int]
    # added to the variance or mean square
    epsilon: float
    # the values are multiplied by it (default 1); the client multiplies by it (default 1);
    # broadcast to x
    factor: Symbol | float
    # value of a masked score
    fill: float
    # that the sum approximates, where it is known; the client applies it afterwards, along the last
    # axis: log_softmax, softmax, argmax, log_sigmoid, squeeze, sigmoid, normalize
    function: str
    # times the function is what the sum approximates (default 1)
    gain: float
    # [features]
    gamma: Symbol
    # channels are convolved in so many groups
    groups: int
    # of a packed value: the poly value whose elements its slots hold
    holds: str
    # from 0
    index: int
    # its arguments that the domain stands for: [low, high], or [channels, 2]
    interval: Symbol | list[float]
    # with a mask: the last token that it keeps, alone
    last: bool
    # packing of the result; of the result, where a replicated operand grows an axis
    layout: Layout
    # axis of the layout
    layout_axis: str
    # level of its ciphertexts, where another program reads them (default: any); level of the fresh
    # ciphertexts; level; level of the result
    level: int
    # times log(keys / visible keys) is added to visible scores (default 0)
    log_keys: float
    # greatest magnitude of the result that calibration saw; of an output, of the answer
    magnitude: float
    # greatest mean of one input's result that calibration saw
    mean: float
    # name in the data; name of the result; name
    name: str
    # of an output: error that encryption adds to an answer, a root mean square
    noise: float
    # change of the outputs by an error of the result, in units of their size; of an output, what a
    # change of 1 is in units of the answer
    noise_gain: float
    # zero in unused slots: only their index 0 stays
    only_first: bool
    # id of the padding, and its position; 0 for a mask; the token id of padding: it stands where
    # attention_mask is 0, and nowhere else
    padding: int
    # two diagonals share a complex plaintext
    paired: bool
    # the nonlinear function that the op was expanded from
    part: str
    # slots after which the operand repeats: a narrow bootstrap
    period: int
    # result axis i is operand axis permutation[i]
    permutation: list[int]
    # what state holds in the first run: rows of the first tokens, [batch, heads, tokens, width]
    # (default: none)
    prefix: Symbol
    # token of the only query (default 0)
    query: int
    # copies
    repeats: int
    # broadcast to x
    scale: Symbol | float
    # extents, batch first; extents; extents of the tensor
    shape: list[int]
    # broadcast to x; the client adds it (default 0)
    shift: Symbol | float
    # client, server or public
    side: str
    # [n, d]; rotary table [n, d]
    sin: Symbol
    # [heads]: times the visible keys before a key is added to its score; [heads]
    slopes: Symbol
    # the server keeps it from run to run: the next run reads the output of this name
    state: bool
    # step of the kernel along each axis
    stride: list[int]
    # [vocabulary, features]
    table: Symbol
    # doublings
    times: int
    # 0: copies of the first kept token; -1: of the last
    token: int
    # b is given as [..., n, k]
    transpose_b: bool
    # where the sum is accurate; the domain is (−1, 1)
    valid: list[float]
    # what every masked weight holds; broadcast to x; broadcast to the packed tensor
    value: Symbol | float
    # [out, in]; [out, channels / groups, *kernel]
    weight: Symbol
    # a query sees only keys less than so many tokens away; queries that the mask drops have no
    # window
    window: int
    # zero in padding tokens (else they copy token 0)
    zero_padding: bool
