"""The abstract problem of bootstrap placement: a DAG of values with levels, and a modulus chain.

All operands of a node enter it at one level i, and its result leaves at i - depth >= 0. Between a
result and its uses a value may drop to any lower level for free. It may also be bootstrapped, which
costs the same from every level that a bootstrap can begin at. It ends at one of the backend's
levels, of which a lower one may cost less. One bootstrap refreshes as many ciphertexts of the value
as the backend puts into one. The problem is to find the entry levels and bootstraps of least total
cost.

A value needs at most one bootstrap, to the least level that is enough for all uses. Dropping is
free, so two bootstraps (before a fork and on a branch, or on two branches) never beat a single one.
So the entry levels alone describe a placement.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

Landing: TypeAlias = float | tuple[float, ...]
"""Cost of a bootstrap: a constant, or one figure for each level 0..bootstrap_level after it."""


@dataclass(frozen=True)
class LevelChain:
    """The levels that a backend offers.

    Attributes:
        max_level: the top of the modulus chain; levels are 0..max_level.
        bootstrap_level: highest level after a bootstrap; None without bootstraps.
        bootstrap_cost: cost of one bootstrap.
        one_cost: cost for a ciphertext without a partner, if one bootstrap refreshes two; None: the
            same.
        bootstrap_batch: number of ciphertexts of one value that one bootstrap refreshes.
        narrow_cost: cost for each ciphertext whose slots repeat; None: as for others.
        lowest: least level of a ciphertext that can be bootstrapped: the levels that this consumes.
        landings: other levels that a bootstrap may end at.
    """

    max_level: int
    bootstrap_level: int | None = None
    bootstrap_cost: Landing = 1.0
    bootstrap_batch: int = 1
    one_cost: Landing | None = None
    narrow_cost: Landing | None = None
    lowest: int = 0
    landings: tuple[int, ...] = ()

    def landing(self, level: int) -> int:
        """The level that a bootstrap for a level ends at."""
        assert self.bootstrap_level is not None, "a level that no bootstrap reaches"
        return min(at for at in (*self.landings, self.bootstrap_level) if at >= level)

    def cost_of(self, node: LevelNode, level: int) -> float:
        """Cost of the bootstraps that refresh a node's result for a level."""
        level = self.landing(level)
        if node.narrow and self.narrow_cost is not None:
            return _at(self.narrow_cost, level) * node.ciphertexts
        whole, rest = divmod(node.ciphertexts, self.bootstrap_batch)
        one = self.bootstrap_cost if self.one_cost is None else self.one_cost
        two = _at(self.bootstrap_cost, level) * whole if whole else 0.0
        return two + (_at(one, level) if rest else 0.0)

    def bootstraps(self, node: LevelNode) -> int:
        """Number of bootstraps that refresh a node's result."""
        narrow = node.narrow and self.narrow_cost is not None
        return -(-node.ciphertexts // (1 if narrow else self.bootstrap_batch))


class Way(NamedTuple):
    """Another way to do an operation: its depth, which is not less, and its cost, as of a node."""

    depth: int
    cost: float | tuple[float, ...]


@dataclass(frozen=True)
class LevelNode:
    """One operation, or an input if `level` is given.

    Attributes:
        name: name in errors and reports.
        operands: indices of the nodes whose results it reads; one may appear twice.
        depth: number of levels that it consumes.
        cost: cost of the whole operation, all ciphertexts included: a constant, or one figure for
            each entry level 0..max_level. The unit is the caller's (such as seconds) and the same
            as for bootstraps. A figure is at least 0; `math.inf` forbids the level.
        ciphertexts: number of ciphertexts of its result, which its bootstraps refresh.
        refreshable: whether its result may be bootstrapped.
        narrow: whether the slots of its result repeat.
        other: another way to do the operation.
        level: inputs only: the level of the fresh ciphertext.
    """

    name: str
    operands: tuple[int, ...] = ()
    depth: int = 0
    cost: float | tuple[float, ...] = 0.0
    ciphertexts: int = 1
    refreshable: bool = True
    level: int | None = None
    narrow: bool = False
    other: Way | None = None

    @property
    def ways(self) -> tuple[LevelNode, ...]:
        """The node done in one way, for each way."""
        one = replace(self, other=None)
        return (one,) if self.other is None else (one, replace(one, **self.other._asdict()))

    def cost_at(self, level: int) -> float:
        """Cost if the node is entered at `level`."""
        return _at(self.cost, level)


def _at(cost: float | tuple[float, ...], level: int) -> float:
    return float(cost[level] if isinstance(cost, tuple) else cost)


@dataclass
class LevelGraph:
    """Nodes in topological order; a node is identified by its index.

    A node whose result is never read is an output. A value that is both read and an output gets a
    node of depth 0 and cost 0 for the output.
    """

    nodes: list[LevelNode] = field(default_factory=list)

    def add(self, node: LevelNode) -> int:
        """Add a node whose operands exist already, and return its index."""
        self.nodes.append(node)
        return len(self.nodes) - 1

    def uses(self) -> list[list[int]]:
        """For every node its distinct users, in topological order."""
        users: list[list[int]] = [[] for _ in self.nodes]
        for index, node in enumerate(self.nodes):
            for operand in dict.fromkeys(node.operands):
                users[operand].append(index)
        return users
