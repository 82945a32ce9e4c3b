"""The Python interface behind ``import atlasc``: from a model to encrypted answers."""
