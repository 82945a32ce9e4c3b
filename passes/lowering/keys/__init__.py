"""The choice of a program's rotation keys, and their sizes."""
