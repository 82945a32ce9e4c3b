"""What a lowered program costs, read off the program."""
