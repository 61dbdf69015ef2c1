"""FeatARC: feature alignment regularization and clustering."""
