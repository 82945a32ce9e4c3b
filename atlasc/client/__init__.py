"""The client's cleartext work: queries, answers, and the checks of both."""
