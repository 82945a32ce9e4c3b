"""What a client does in the clear: queries, answers, and the checks on both."""
