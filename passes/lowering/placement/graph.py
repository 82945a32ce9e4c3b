"""The abstract problem of bootstrap placement: a DAG of values with levels, and a modulus chain.

A node enters at one level i, shared by all its operands, and its result leaves at i - depth >= 0.
Between a result and its uses a value may drop to any lower level for free, and it may be
bootstrapped: a bootstrap to level j costs T(j), whatever level it came from, and one bootstrap
refreshes as many ciphertexts of the value as the backend puts into one. Wanted are the entry levels
and the bootstraps with the least sum of node costs and bootstraps.

One value needs at most one bootstrap. Two bootstraps of a value (one before a fork and one on a
branch, or one on each of two branches) never beat a single one to the higher of their levels,
because dropping is free; so the problem is fully described by the entry levels alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Cost = float | Sequence[float] | Callable[[int], float]
"""Cost of a node: a constant, one figure per entry level 0..max_level, or level -> cost.

The unit is the caller's (seconds, say), the same as that of the bootstraps. A figure is at least 0;
`math.inf` forbids the level.
"""


@dataclass(frozen=True)
class LevelChain:
    """The levels that a backend offers.

    Attributes:
        max_level: the top of the modulus chain; levels are 0..max_level.
        bootstrap_costs: T, cost of one bootstrap by the level that a ciphertext has afterwards;
            empty for a leveled program. Targets with an infinite cost are none.
        bootstrap_batch: ciphertexts of one value that one bootstrap refreshes.
        bootstrap_from: least level at which a ciphertext can still be bootstrapped.
        output_level: least level that the results of the program must have left.
    """

    max_level: int
    bootstrap_costs: Mapping[int, float] = field(default_factory=dict)
    bootstrap_batch: int = 1
    bootstrap_from: int = 0
    output_level: int = 0

    def __post_init__(self) -> None:
        if self.max_level < 0:
            raise ValueError(f"max_level is {self.max_level}; it must be at least 0")
        if self.bootstrap_batch < 1:
            raise ValueError(f"a bootstrap cannot refresh {self.bootstrap_batch} ciphertexts")
        for name in ("bootstrap_from", "output_level"):
            if not 0 <= getattr(self, name) <= self.max_level:
                raise ValueError(f"{name} is {getattr(self, name)}, outside 0..{self.max_level}")
        for level, cost in self.bootstrap_costs.items():
            if not 0 <= level <= self.max_level:
                raise ValueError(f"bootstrap target {level} is outside 0..{self.max_level}")
            if not cost >= 0:
                raise ValueError(f"the bootstrap to level {level} has cost {cost}, not >= 0")

    @property
    def bootstrap_level(self) -> int | None:
        """The highest level that a bootstrap reaches; None where there is no bootstrap."""
        targets = [level for level, cost in self.bootstrap_costs.items() if math.isfinite(cost)]
        return max(targets, default=None)

    def bootstraps(self, ciphertexts: int) -> int:
        """Bootstraps that refresh a value of so many ciphertexts."""
        return -(-ciphertexts // self.bootstrap_batch)

    def refresh(self, level: int) -> tuple[float, int | None]:
        """Cheapest bootstrap to at least `level`: (cost, level reached).

        Of equally cheap ones it is the lowest; (inf, None) where no bootstrap gets that far.
        """
        reached = ((cost, j) for j, cost in self.bootstrap_costs.items() if j >= level)
        cost, target = min(reached, default=(math.inf, level))
        return (cost, target) if math.isfinite(cost) else (math.inf, None)


@dataclass(frozen=True)
class Node:
    """One operation, or an input where `level` is given.

    Attributes:
        name: what errors and reports call it.
        operands: indices of the nodes whose results it reads; one may appear twice.
        depth: levels that it consumes.
        cost: see `Cost`; of the whole operation, all ciphertexts included.
        ciphertexts: number of ciphertexts of its result: what its bootstraps have to refresh.
        refreshable: whether its result may be bootstrapped.
        level: inputs only, the level of the fresh ciphertext.
    """

    name: str
    operands: tuple[int, ...] = ()
    depth: int = 0
    cost: Cost = 0.0
    ciphertexts: int = 1
    refreshable: bool = True
    level: int | None = None

    @property
    def is_input(self) -> bool:
        """Whether the node is an input of the program."""
        return self.level is not None

    def cost_at(self, level: int) -> float:
        """Cost when it is entered at `level`."""
        if callable(self.cost):
            return float(self.cost(level))
        return float(self.cost if isinstance(self.cost, int | float) else self.cost[level])


class LevelGraph:
    """A DAG of nodes in topological order; a node is spoken of by its index.

    A node whose result is never read is an output and has to keep `LevelChain.output_level`. A
    value that is both read and an output gets a node of depth 0 and cost 0 for the output.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add_input(
        self, name: str, level: int, ciphertexts: int = 1, *, refreshable: bool = True
    ) -> int:
        """Add an input encrypted at `level` (dropping to a lower one is free)."""
        if level < 0:
            raise ValueError(f"input {name} has level {level}")
        return self._append(
            Node(name, ciphertexts=ciphertexts, refreshable=refreshable, level=level)
        )

    def add_node(
        self,
        name: str,
        operands: Sequence[int],
        *,
        depth: int = 0,
        cost: Cost = 0.0,
        ciphertexts: int = 1,
        refreshable: bool = True,
    ) -> int:
        """Add an operation on earlier nodes; returns its index."""
        if not operands:
            raise ValueError(f"node {name} reads nothing; an input is added with add_input")
        for operand in operands:
            if not 0 <= operand < len(self.nodes):
                raise ValueError(f"node {name} reads node {operand}, which is not there yet")
        if depth < 0:
            raise ValueError(f"node {name} has depth {depth}")
        if not callable(cost) and not isinstance(cost, int | float):
            cost = tuple(cost)
        return self._append(Node(name, tuple(operands), depth, cost, ciphertexts, refreshable))

    def uses(self) -> list[list[int]]:
        """For every node its distinct users, in topological order."""
        users: list[list[int]] = [[] for _ in self.nodes]
        for index, node in enumerate(self.nodes):
            for operand in dict.fromkeys(node.operands):
                users[operand].append(index)
        return users

    def _append(self, node: Node) -> int:
        if node.ciphertexts < 0:
            raise ValueError(f"node {node.name} has {node.ciphertexts} ciphertexts")
        self.nodes.append(node)
        return len(self.nodes) - 1

    def __len__(self) -> int:
        return len(self.nodes)
