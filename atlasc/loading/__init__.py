"""Models and data: read from files without running code from them, and checked."""

LONG = ("truncate", "windows", "refuse")
"""What becomes of a text that is too long: it is cut at its end, it becomes several inputs, or the
data are refused."""
