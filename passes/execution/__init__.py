"""Running a lowered program on an engine: protocol, kernels, dry runs."""
