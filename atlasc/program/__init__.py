"""Runs a lowered program on an engine: the engine, kernels, rotation plans."""
