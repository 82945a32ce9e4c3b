"""Rules on the axis of the tokens: convolutions before the tokens, cuts, concatenations, means."""
