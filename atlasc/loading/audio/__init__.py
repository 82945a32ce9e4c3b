"""Recordings as inputs, through the feature extractors of transformers."""
