"""The exported graph of torch in a normal form, and the constants in it."""
