"""Exact bootstrap placement on an abstract graph of values with levels.

`graph` states the problem, `place` solves it: series-parallel reduction with (min,+) tables, wider
elimination where a graph is not series-parallel, and a program over the live values beyond that.
"""

from atlasc.passes.lowering.placement.graph import Cost, LevelChain, LevelGraph, Node
from atlasc.passes.lowering.placement.placement import Method, Placement, place

__all__ = ["Cost", "LevelChain", "LevelGraph", "Method", "Node", "Placement", "place"]
