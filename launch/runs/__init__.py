"""The training runs of `pretrain` and `centralized`."""
