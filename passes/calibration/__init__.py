"""Passes that use the calibration."""
