"""Four models that a user brings, taken through `compile`, `check` and `evaluate`."""
