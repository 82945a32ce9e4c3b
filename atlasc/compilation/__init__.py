"""From a model and its data to a program on disk, a module for each stage.

`options` and `checks`: what users may ask for, and what is refused before any work is done.
`prepare`: load the model and the data, trace, measure ranges. `search`: a front of settings;
`fronts` keeps it on disk. `lowering` turns the model into a packed program for a target, with its
rotation keys and its `noise_bound`. `compile` picks a setting and writes the bundle.
`single_stages`: what a program costs without data; `lower` and `opt` on their own.
"""
