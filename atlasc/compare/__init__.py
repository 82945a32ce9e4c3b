"""Comparison of two targets, op by op."""
