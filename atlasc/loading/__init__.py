"""Models and data: read from files without running code from them, and checked."""

LONG = ("truncate", "windows", "refuse")
"""Treatment of a text that is too long: cut it at its end, divide it into several inputs, or refuse
the data."""
IDS, MASK, SEGMENTS, POSITIONS = "input_ids", "attention_mask", "token_type_ids", "position_ids"
"""Inputs with one number per token, under their HuggingFace names."""
