"""Rounds in which clients train: counted afterwards from the log, and known before."""

import numpy as np
import pytest

from tff_ssl.simulation import metrics_log
from tff_ssl.simulation.participation import Participation


def row(dropped=0):
    return {"loss": np.float32(1.0), "dropped": np.int64(dropped)}


def test_trained_rounds_are_counted_without_dropped_results(tmp_path):
    path = tmp_path / "client_metrics.csv"
    assert metrics_log.trained_rounds(path, 2).tolist() == [0, 0]
    log = metrics_log.ClientLog(path)
    log.write(0, np.array([3, 1]), [row(), row()])
    log.write(1, np.array([3, 0]), [row(), row(dropped=1)])
    # DeNAV may train two models on one client in one round.
    log.write(2, np.array([1, 1]), [row(), row()])
    counts = metrics_log.trained_rounds(path, 5)
    assert counts.dtype == np.int64
    assert counts.tolist() == [0, 2, 0, 2, 0]


@pytest.mark.parametrize("left", ["", "round,client,lo", "round,client,loss,dropped\r\n1,3"])
def test_what_a_kill_left_of_the_first_rows_is_replaced(tmp_path, left):
    path = tmp_path / "client_metrics.csv"
    path.write_text(left)
    log = metrics_log.ClientLog(path)
    log.trim(0)
    assert not path.exists()
    log.write(0, np.array([3]), [row()])
    assert metrics_log.trained_rounds(path, 4).tolist() == [0, 0, 0, 1]


def test_a_file_without_content_gets_its_header(tmp_path):
    path = tmp_path / "client_metrics.csv"
    path.touch()
    metrics_log.ClientLog(path).write(0, np.array([3]), [row()])
    assert path.read_text().startswith("round,client,loss,dropped")


def test_the_most_frequent_client_is_the_first_of_several():
    cohorts = [[4, 1], [4, 2], [2, 1], [4, 0]]
    participation = Participation(lambda number: np.array(cohorts[number]), 2, 2)
    assert participation.most_frequent(4, range(5)) == 4
    assert participation.most_frequent(4, [0, 2, 1]) == 1
    assert participation.most_frequent(0, [3, 2]) == 2
