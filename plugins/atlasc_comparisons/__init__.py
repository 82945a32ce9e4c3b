"""Systems to compare atlasc with: settings of published systems, and the engine of desilofhe.

The package registers itself (``plugins/pyproject.toml``): with it installed, ``--target desilo``
and ``--recipe nexus`` work, and so do texts of programs with these approximations.
"""
