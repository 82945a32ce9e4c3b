"""The approximation algorithms, each written once against an abstract arithmetic."""
