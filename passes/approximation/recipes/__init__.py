"""Named settings of published systems, and settings on calibrated ranges."""
