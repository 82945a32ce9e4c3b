"""A model of the output error as a sum over the choices of a setting."""
