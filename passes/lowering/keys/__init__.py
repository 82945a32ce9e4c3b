"""Which rotation keys a program gets, and what they weigh."""
