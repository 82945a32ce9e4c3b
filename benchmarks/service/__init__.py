"""``python -m benchmarks.service``: a service under load, and under kills."""
