"""A demonstration: ``atlasc serve --demo`` welcomes visitors, and ``atlasc demo`` is their page.

A visitor's page is served by a program on the visitor's own machine, which has the secret key. The
service never sees that page, nor a line of what it shows.
"""
