"""Files of runs that are damaged, and those that are not."""

import math

import pytest

from tff_ssl.errors import ConfigurationError
from tff_ssl.reporting import checked_files


def test_metrics_are_numbers_by_column_without_empty_cells(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("round,loss,knn_accuracy\n1,2.5,\n3,nan,0.5\n")
    first, second = checked_files.read_metrics(path)
    assert first == {"round": 1, "loss": 2.5}
    assert (second["round"], second["knn_accuracy"], math.isnan(second["loss"])) == (3, 0.5, True)
    for content in ("", "round,loss\n"):  # Of a run that was stopped in its first round.
        path.write_text(content)
        assert checked_files.read_metrics(path) == []


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe", b"rnd,loss\n1,2\n", b"round,loss,loss\n1,2,3\n", b"round,loss\n1\n",
        b"round,loss\n1,2,3\n", b"round,loss\n1,x\n", b"round,loss\n2,1\n1,1\n",
        b"round,loss\n1,1\n1,1\n", b"round,loss\n,1\n", b'round,loss\n1,"2\n', b"round,loss\n0,1\n",
        b"round,loss\nnan,1\n",
    ],
)  # fmt: skip
def test_damaged_metrics_are_named(tmp_path, content):
    path = tmp_path / "metrics.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"{path} is damaged .*put back a whole one"):
        checked_files.read_metrics(path)


FORM = {"count": int, "share": (float, None), "names": [str], "by_name": {str: [int]}}
RIGHT = {"count": 0, "share": None, "names": [], "by_name": {"x": [1]}, "more": {}}


def test_a_value_of_the_form_is_right():
    assert checked_files.has_form(RIGHT, FORM)
    assert checked_files.has_form(RIGHT | {"share": 1}, FORM)


@pytest.mark.parametrize(
    "change",
    [
        {"count": -1}, {"count": True}, {"count": 1.0}, {"share": "1"}, {"share": math.inf},
        {"share": False}, {"names": {}}, {"names": [1]}, {"by_name": []}, {"by_name": {"x": 1}},
    ],
)  # fmt: skip
def test_another_value_is_wrong(change):
    assert not checked_files.has_form(RIGHT | change, FORM)
    assert not checked_files.has_form([], FORM)
    for name in FORM:
        assert not checked_files.has_form({k: v for k, v in RIGHT.items() if k != name}, FORM)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b'{"count": 1}', b"[]"])
def test_damaged_json_is_named(tmp_path, content):
    path = tmp_path / "some.json"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"{path} cannot be read .*put back a whole one"):
        checked_files.read_json(path, FORM)
