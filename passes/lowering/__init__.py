"""From polynomials to packed ciphertexts: folding, layouts, linear plans, levels, bootstraps."""
