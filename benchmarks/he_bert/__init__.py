"""HomomorphicEncryption.org's BERT workload: our stages, as its harness calls them."""
