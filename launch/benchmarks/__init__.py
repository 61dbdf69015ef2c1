"""The programs that `benchmark` measures."""
