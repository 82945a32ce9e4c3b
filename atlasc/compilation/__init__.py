"""From a model and its data to a program on disk, one module for each stage.

`options` and `checks`: the user's options, and mistakes that are refused before any work is done.
`prepare`: loads the model and the data, traces, measures ranges. `search`: finds a Pareto front of
settings; `fronts` keeps it on disk. `lowering` turns the model into a packed program for a target,
with its rotation keys and its `noise_bound`. `compile` picks a setting and writes the bundle.
`single_stages`: `inspect` (costs without data), `lower` and `opt` on their own.
"""
