"""Rules of the client's part before the tokens: convolutions and group norms.

A convolution ends as [batch, positions, features]: each position is a token. The model's own order
of axes is made of this by a reshape and a transpose, which cancel where the model flattens the
positions itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from atlasc.ir.module import Value
from atlasc.ir.opdef import Symbol
from atlasc.passes.frontend.exported.graph import Node, reads_one_place, shape
from atlasc.passes.frontend.importer import Importer, Refusal

AFTER_ATTENTION = (
    "it has no rule on encrypted data; the client computes it only before the first attention, or "
    "on the model's input"
)


def convolution(
    importer: Importer,
    x: Node,
    kernel: Node,
    bias: Node | None,
    stride: Sequence[int],
    padding: Sequence[int] | str,
    dilation: Sequence[int],
    groups: int,
) -> Value:
    """conv1d, conv2d and conv3d, with numbers or a word (``valid``, ``same``) as padding."""
    axes = len(shape(x)) - 2
    if importer.node not in importer.before_tokens and reads_one_place(importer.node):
        return _layer_at_each_place(importer, x, kernel, bias, int(groups))
    _require_client(importer)
    steps, widths = (
        [int(n) for n in given] * (axes if len(given) == 1 else 1) for given in (stride, dilation)
    )
    pairs = _padding(padding, shape(kernel)[2:], widths)
    rows = importer.add(
        "nn.convolution",
        x,
        weight=importer.symbol(kernel),
        bias=importer.symbol(bias),
        stride=steps,
        border=pairs,
        dilation=widths,
        groups=int(groups),
    )
    batch, features, *sides = shape(importer.node)
    turned = importer.add("nn.transpose", rows, permutation=[0, 2, 1])
    if axes == 1:
        return turned
    return importer.add("nn.reshape", turned, shape=[batch, features, *sides])


def _layer_at_each_place(
    importer: Importer, x: Node, kernel: Node, bias: Node | None, groups: int
) -> Value:
    """A convolution of width 1: a linear layer of the channels, in blocks for groups."""
    array = importer.array(kernel)
    outputs, inputs = array.shape[:2]
    weight = importer.symbol(kernel)
    if groups > 1 or array.ndim > 2:
        blocks = np.zeros((groups, outputs // groups, groups, inputs), array.dtype)
        places = np.arange(groups)
        blocks[places, :, places] = array.reshape(groups, outputs // groups, inputs)
        weight = importer.constant(importer.name_of(kernel), blocks.reshape(outputs, -1))
    last, back = channels_last(len(shape(x)))
    value = importer.add("nn.transpose", x, permutation=last)
    value = importer.add("nn.linear", value, weight=weight, bias=importer.symbol(bias))
    return importer.add("nn.transpose", value, permutation=back)


def channels_last(rank: int) -> tuple[list[int], list[int]]:
    """The permutation of axes that puts axis 1 at the end, and the one back."""
    return [0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)]


def batch_norm(
    importer: Importer,
    x: Node,
    weight: Node | None,
    bias: Node | None,
    mean: Node | None,
    variance: Node | None,
    training: bool,
    momentum: float,
    epsilon: float,
    *options: object,
) -> Value:
    """A factor and a shift for each channel, from the running mean and variance."""
    if training or mean is None or variance is None:
        raise Refusal(
            "it takes mean and variance of the batch, so that an answer depends on the other "
            "inputs: call model.eval(), and keep running statistics"
        )
    parts = [one for one in (weight, bias, mean, variance) if one is not None]
    if any(importer.kinds[one] != "constant" for one in parts):
        raise Refusal("its statistics and weights must be constant")
    factor = 1 / np.sqrt(importer.array(variance).astype(np.float64) + float(epsilon))
    if weight is not None:
        factor = factor * importer.array(weight)
    shift = -importer.array(mean) * factor
    if bias is not None:
        shift = shift + importer.array(bias)
    name, last_axis = importer.name_of(mean), len(shape(x)) == 2
    last, back = channels_last(len(shape(x)))
    value = importer.value(x) if last_axis else importer.add("nn.transpose", x, permutation=last)
    symbols = [
        importer.constant(f"{name}.{part}", array.astype(np.float32))
        for part, array in (("factor", factor), ("shift", shift))
    ]
    value = importer.add("nn.scale", value, factor=symbols[0])
    value = importer.add("nn.add_constant", value, value=symbols[1])
    return value if last_axis else importer.add("nn.transpose", value, permutation=back)


def _padding(
    padding: Sequence[int] | str, kernel: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    """Zeros before and after each axis, in pairs; torch puts the odd one of ``same`` at the end."""
    if padding == "valid":
        return [0] * (2 * len(kernel))
    if padding == "same":
        totals = [step * (width - 1) for width, step in zip(kernel, dilation, strict=True)]
        return [part for total in totals for part in (total // 2, total - total // 2)]
    given = [int(n) for n in padding] * (len(kernel) if len(padding) == 1 else 1)
    return [n for n in given for _ in range(2)]


def group_norm(
    importer: Importer,
    x: Node,
    groups: int,
    weight: Node | None,
    bias: Node | None,
    epsilon: float,
    *options: object,
) -> Value:
    """A layer norm of each group of channels, then the factor and the shift of each channel."""
    _require_client(importer)
    batch, channels, *sides = extents = list(shape(x))
    width = channels // groups * math.prod(sides)
    plain = {
        name: importer.constant(fill, np.broadcast_to(np.float32(number), (width,)))
        for name, fill, number in (("gamma", "ones", 1), ("beta", "zeros", 0))
    }
    add = importer.add
    value = add("nn.reshape", x, shape=[batch, groups, width])
    value = add("nn.layer_norm", value, epsilon=float(epsilon), **plain)
    value = add("nn.reshape", value, shape=extents)
    column = (channels, *[1] * len(sides))

    def by_channel(node: Node) -> Symbol:
        return importer.constant(importer.name_of(node), importer.array(node).reshape(column))

    if weight is not None:
        value = add("nn.scale", value, factor=by_channel(weight))
    if bias is not None:
        value = add("nn.add_constant", value, value=by_channel(bias))
    return value


def _require_client(importer: Importer) -> None:
    if importer.node not in importer.before_tokens:
        raise Refusal(AFTER_ATTENTION)


CLIENT_RULES: dict[Callable[..., Value], str] = {
    convolution: "conv1d.default conv2d.default conv3d.default conv1d.padding conv2d.padding "
    "conv3d.padding",
    group_norm: "group_norm.default",
    batch_norm: "batch_norm.default",
    lambda importer, *given: batch_norm(
        importer, *given[:5], False, *given[5:]
    ): "_native_batch_norm_legit_no_training.default",
}
"""Rule -> ops, as in ``aten_rules``."""
