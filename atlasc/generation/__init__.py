"""Text written token by token, on keys and values that stay encrypted on the server."""
