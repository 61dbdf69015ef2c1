"""What `launch.soak` makes of what it sees."""

import os

import pytest

from launch.benchmarks import processes


def test_flatness_compares_the_first_tenth_after_the_start_with_the_last():
    rounds = 100
    looks = [{"round": r, "rss_mb": 100.0 + r, "open_files": 7} for r in range(0, rounds, 2)]
    seconds = [9.0] * 5 + [1.0] * 10 + [5.0] * 75 + [2.0] * 10
    found = processes.flatness(looks, seconds, rounds)
    assert found["rss_mb_first_tenth"] == 100 + 10  # Of rounds 6, 8, 10, 12 and 14.
    assert found["rss_mb_last_tenth"] == 100 + 94
    assert (found["seconds_first_tenth"], found["seconds_last_tenth"]) == (1, 2)
    assert found["open_files_first_tenth"] == found["open_files_last_tenth"] == 7


def test_what_a_process_holds_is_counted():
    before = processes.held(os.getpid())
    opened = [open(os.devnull) for _ in range(20)]  # noqa: SIM115
    kept = bytearray(os.urandom(1 << 20)) * 100
    after = processes.held(os.getpid())
    for file in opened:
        file.close()
    assert after["open_files"] - before["open_files"] == pytest.approx(20, abs=5)
    assert after["rss_mb"] - before["rss_mb"] == pytest.approx(len(kept) / 1e6, rel=0.3)
    assert processes.held(2**22 + 1) == {"rss_mb": 0, "open_files": 0}
