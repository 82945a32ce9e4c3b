"""Polynomial approximations of softmax, norms and activations."""
