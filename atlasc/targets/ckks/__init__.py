"""What the targets on our own CKKS engine share: parameters, limits, and C++ projects."""
