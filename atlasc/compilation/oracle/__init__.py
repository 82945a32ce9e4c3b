"""The user's own module, beside everything that is made of it."""
