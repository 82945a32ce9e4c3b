"""Models and data: read from files without running code from them, and checked."""

LONG = ("truncate", "windows", "refuse")
"""What becomes of a text that is too long: it is cut at its end, it becomes several inputs, or the
data are refused."""
IDS, MASK, SEGMENTS, POSITIONS = "input_ids", "attention_mask", "token_type_ids", "position_ids"
"""Inputs with a number for each token, as HuggingFace calls them."""
