"""Facts about the values of a module: magnitudes, noise gains, depths."""
