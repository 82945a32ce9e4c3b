"""``python -m benchmarks.mutation``: do the tests find faults that are planted by hand?"""
