"""A target that counts and computes nothing."""
