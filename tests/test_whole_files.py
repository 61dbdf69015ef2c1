"""Files that appear whole or not at all, and never follow a link."""

import contextlib
import errno
import os
import pathlib
import shutil
import stat

import pytest

from tff_ssl import whole_files


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_has_its_content_its_mode_and_no_other_beside_it(tmp_path):
    path = tmp_path / "name"
    before = os.umask(0o027)
    try:
        assert whole_files.write(path, "grün\n") == path
        assert (path.read_bytes(), mode(path)) == ("grün\n".encode(), 0o640)
        whole_files.write(path, b"\xff", private=True)
        assert (path.read_bytes(), mode(path)) == (b"\xff", 0o600)
        with whole_files.replacing_folder(tmp_path / "folder") as new:
            (new / "inside").write_text("1")
        assert mode(tmp_path / "folder") == 0o750
    finally:
        os.umask(before)
    assert {p.name for p in tmp_path.iterdir()} == {"name", "folder"}


@pytest.mark.parametrize("writer", [whole_files.replacing, whole_files.replacing_folder])
def test_an_error_leaves_what_was_there(tmp_path, writer):
    path = tmp_path / "name"
    with writer(path) as new:
        (new / "inside" if new.is_dir() else new).write_text("first")

    def interrupted():
        with writer(path) as new:
            (new / "inside" if new.is_dir() else new).write_text("second")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == [path]
    assert (path / "inside" if path.is_dir() else path).read_text() == "first"


def test_a_process_that_dies_while_it_replaces_a_folder_leaves_a_whole_one(tmp_path, monkeypatch):
    """Dies at each renaming and deletion; what it left unfinished is deleted afterwards."""
    path, calls = tmp_path / "name", []

    class Died(BaseException):
        """Like a kill, from which nothing is cleaned up."""

    def dying(call, at):
        def wrapped(*args, **options):
            calls.append(call.__name__)
            if len(calls) == at:
                monkeypatch.undo()
                monkeypatch.setattr(shutil, "rmtree", lambda *args, **options: None)
                raise Died
            return call(*args, **options)

        return wrapped

    for at in range(1, 5):
        path.mkdir()
        for name in "ab":
            (path / name).write_text("old")
        calls.clear()
        monkeypatch.setattr(pathlib.Path, "rename", dying(pathlib.Path.rename, at))
        monkeypatch.setattr(shutil, "rmtree", dying(shutil.rmtree, at))
        with contextlib.suppress(Died), whole_files.replacing_folder(path) as new:
            for name in "ab":
                (new / name).write_text("new")
        monkeypatch.undo()
        # Only between two renamings is there none.
        assert path.exists() or calls == ["rename", "rename"], at
        if path.exists():
            texts = {inside.read_text() for inside in path.iterdir()}
            assert len(list(path.iterdir())) == 2, at
            assert len(texts) == 1, at
        for left in tmp_path.iterdir():
            shutil.rmtree(left)
    assert calls[:3] == ["rename", "rename", "rmtree"]


def test_an_interrupt_between_the_two_renamings_leaves_the_old_folder(tmp_path, monkeypatch):
    path, rename, calls = tmp_path / "name", pathlib.Path.rename, []
    path.mkdir()
    (path / "inside").write_text("old")

    def interrupted(self, target):
        calls.append(target)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(pathlib.Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), whole_files.replacing_folder(path) as new:
        (new / "inside").write_text("new")
    assert (path / "inside").read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_links_are_replaced_and_not_followed(tmp_path):
    victim, folder = tmp_path / "victim", tmp_path / "kept"
    victim.write_text("precious")
    folder.mkdir()
    (folder / "inside").write_text("precious")
    for name, target in (("a", victim), ("b", tmp_path / "nowhere"), ("c", folder), ("d", folder)):
        (tmp_path / name).symlink_to(target)
    for name in "abc":
        whole_files.write(tmp_path / name, "new")
        assert not (tmp_path / name).is_symlink()
    with whole_files.replacing_folder(tmp_path / "d") as new:
        (new / "inside").write_text("new")
    os.link(victim, tmp_path / "hard")
    whole_files.write(tmp_path / "hard", "new")
    assert victim.read_text() == (folder / "inside").read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "log").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        whole_files.append(tmp_path / "log")


def test_lines_are_added(tmp_path):
    for line in ("first\n", "second\n"):
        with whole_files.append(tmp_path / "log") as file:
            file.write(line)
    assert (tmp_path / "log").read_text() == "first\nsecond\n"


def test_lines_may_name_files_whose_names_are_not_utf_8(tmp_path):
    with whole_files.append(tmp_path / "log") as file:
        file.write(os.fsdecode(b"K\xe4fer\n"))
    assert (tmp_path / "log").read_bytes() == b"K\xe4fer\n"


def test_what_a_killed_process_left_is_deleted_and_nothing_else(tmp_path):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    kept = [inside / name for name in ("1.new", ".x.new", "metrics.csv", ".x.abcd123.new")]
    for path in kept:
        path.write_text("1")
    with whole_files.replacing(inside / "x") as left:
        os.link(left, inside / f"{left.name[:3]}abcd1234.new")
    kept.append(inside / "x")
    (inside / f".{'y' * 100}.abcd_234.new").mkdir()
    (inside / f".{'y' * 100}.abcd_234.new" / "1").write_text("1")
    whole_files.remove_unfinished(tmp_path)
    assert sorted(inside.iterdir()) == sorted(kept)


def test_the_error_of_a_full_disk_names_the_file(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        pytest.raises(OSError, match=r"No space left on device: '.*page\.html'"),
        whole_files.replacing(tmp_path / "page.html"),
    ):
        raise full
    assert not list(tmp_path.iterdir())


def test_the_first_link_or_pipe_is_found_in_any_folder(tmp_path):
    assert whole_files.first_odd(tmp_path) is None
    os.mkfifo(tmp_path / "pipe")
    assert whole_files.first_odd(tmp_path) == tmp_path / "pipe"
    (tmp_path / "pipe").unlink()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "link").symlink_to("nowhere")
    assert whole_files.first_odd(tmp_path) == tmp_path / "a" / "link"
    (tmp_path / "a" / "link").unlink()
    (tmp_path / "folder").symlink_to(tmp_path / "a")
    assert whole_files.first_odd(tmp_path) == tmp_path / "folder"
