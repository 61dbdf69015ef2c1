"""The measurements of `launch.studies.soak`."""

import os

import pytest

from launch.benchmarks import processes


def test_a_run_is_summarized_over_the_first_tenth_after_the_start_and_the_last():
    rounds = 100
    observations = [
        {"round": r, "rss_mb": 100.0 + r, "open_files": 7 + r % 4} for r in range(0, rounds, 2)
    ]
    seconds = [9.0] * 5 + [1.0] * 10 + [5.0] * 75 + [2.0] * 10
    result = processes.first_and_last_tenth(observations, seconds, rounds)
    assert result["rss_mb_first_tenth"] == 100 + 10  # The median of rounds 6, 8, 10, 12 and 14.
    assert result["rss_mb_last_tenth"] == 100 + 94
    assert (result["seconds_first_tenth"], result["seconds_last_tenth"]) == (1, 2)
    assert result["open_files_first_tenth"] == result["open_files_last_tenth"] == 7


def test_memory_and_open_files_of_a_process_are_counted():
    before = processes.resource_use(os.getpid())
    opened = [open(os.devnull) for _ in range(20)]  # noqa: SIM115
    kept = bytearray(os.urandom(1 << 20)) * 100
    after = processes.resource_use(os.getpid())
    for file in opened:
        file.close()
    assert after["open_files"] - before["open_files"] == pytest.approx(20, abs=5)
    assert after["rss_mb"] - before["rss_mb"] == pytest.approx(len(kept) / 1e6, rel=0.3)
    assert processes.resource_use(2**22 + 1) == {"rss_mb": 0, "open_files": 0}
