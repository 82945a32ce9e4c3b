"""What a service keeps, for how long, and who changed it."""
