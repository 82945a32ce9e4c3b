"""The client of a service (``atlasc serve``): it needs the standard library and a client's part."""
