"""The polynomial simulator: a model with its polynomials, in the clear."""
