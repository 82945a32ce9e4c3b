"""What a service lets strangers do: connections, requests without a token, and lines of the log."""
