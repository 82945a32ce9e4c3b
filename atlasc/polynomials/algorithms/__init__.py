"""The approximation algorithms of this package; see ``ApproximationAttribute`` for others."""
