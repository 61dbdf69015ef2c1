"""`benchmark --parts=scaling`: what it measures, and that nothing grows with the population."""

import numpy as np
import pytest

from launch.benchmarks import scaling

ROUND = {"seconds": 2.0, "peak_rss_mb": 900.0}
ROWS = {
    "cohorts": [{"clients": 32, **ROUND}, {"clients": 2048, **ROUND, "seconds": 40.96}],
    "populations": [
        {
            "population": population,
            **ROUND,
            "writing_seconds": 1.0,
            "opening_seconds": 0.01,
            "drawing_seconds": 0.0002,
            "checkpoint_seconds": 0.05,
            "checkpoint_mb": 1.5,
        }
        for population in (1_000, 1_000_000)
    ],
}


def test_tables_and_picture_show_every_row(tmp_path):
    lines = scaling.describe(ROWS).splitlines()
    assert "2,048     40.96       20.0      900" in " ".join(lines)
    assert any(line.split()[:2] == ["1,000,000", "2.00"] for line in lines)
    scaling.draw(ROWS, tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.long
@pytest.mark.slow
def test_rounds_are_measured_and_a_checkpoint_does_not_grow_with_the_population(tmp_path):
    rows = scaling.compare(0, 1, str(tmp_path), cohorts=(4,), populations=(40, 400))
    assert [row["clients"] for row in rows["cohorts"]] == [4]
    assert all(row["seconds"] > 0 for row in rows["cohorts"] + rows["populations"])
    small, large = rows["populations"]
    np.testing.assert_allclose(small["checkpoint_mb"], large["checkpoint_mb"], rtol=0.01)
