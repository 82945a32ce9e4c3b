"""All strategies by name: those of the compiler, and the paper's ablation."""

from __future__ import annotations

from atlasc.search import strategies as compiler
from atlasc.search.strategy import Strategy
from benchmarks.search.grid import GridSearch
from benchmarks.search.random_search import RandomSearch
from benchmarks.search.sequential import Sequential
from benchmarks.search.single_stage import SingleStage

COMPARED: dict[str, type[Strategy]] = {
    chosen.name: chosen for chosen in (SingleStage, Sequential, GridSearch, RandomSearch)
}
STRATEGIES = {**compiler.STRATEGIES, **COMPARED}
