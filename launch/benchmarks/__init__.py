"""The programs that `benchmark` measures, and the processes that they run in."""
