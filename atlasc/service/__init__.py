"""``atlasc serve``: answers encrypted queries of many tenants over HTTP.

The service stores, queues and limits; every check of a bundle, a key, a query and an answer is that
of :mod:`atlasc.bundle`, :mod:`atlasc.api.roles` and the runtime library.
"""
