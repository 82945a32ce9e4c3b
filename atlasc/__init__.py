"""A compiler for private Transformer inference under the CKKS homomorphic encryption scheme."""

__version__ = "0.1.0"
