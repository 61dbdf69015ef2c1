"""Training runs: what `pretrain` and `centralized` do."""
