"""The search for settings that buy the most accuracy for their cost."""
