"""Models and data: read from files without running code from them, and checked."""
