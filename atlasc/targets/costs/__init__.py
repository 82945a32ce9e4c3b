"""Cost tables: what the primitives of a target cost on a machine."""
