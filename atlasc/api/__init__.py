"""The Python interface: what ``import atlasc`` offers, from a model to encrypted answers."""
