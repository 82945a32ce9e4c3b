"""The engine ``cpu`` beside ``desilofhe``: bootstraps, products, rotations, in one run."""
