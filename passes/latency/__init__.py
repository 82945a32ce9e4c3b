"""Predicted seconds of a model under any approximations, without lowering it for each.

`outline` tells what an approximation looks like to the lowering, `segments` cuts a packed program
where a single value crosses, `tables` turns a segment into a (min,+) table of a parameter set, and
`model` chains them.
"""

from atlasc.passes.latency.model import LatencyModel, LatencyTarget, TimedChain

__all__ = ["LatencyModel", "LatencyTarget", "TimedChain"]
