"""Emits a compiled program as a C++ project that needs no Python to run."""
