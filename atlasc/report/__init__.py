"""Summaries, pages and pictures of a compiled program."""
