"""The polynomial simulator: runs a model with its polynomials in the clear."""
