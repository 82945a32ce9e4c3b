"""Texts, token ids and other rows as inputs of a model."""
