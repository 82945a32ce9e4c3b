"""Which rotation keys a program gets."""
