"""Figures of a program: predicted costs and measured times."""
