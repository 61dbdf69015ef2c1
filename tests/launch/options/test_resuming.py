"""Resuming a run with nothing but its folder."""

import json
import random

import pytest
from absl import flags

from launch.options import resuming
from launch.outputs import run_folder
from tff_ssl.errors import ConfigurationError


@pytest.fixture
def define():
    """() -> flags like those of a script."""

    def flag_values():
        values = flags.FlagValues()
        flags.DEFINE_string("output_dir", None, "", flag_values=values)
        flags.DEFINE_string("dataset", "digits", "", flag_values=values)
        flags.DEFINE_boolean("resume", False, "", flag_values=values)
        flags.DEFINE_boolean("fold", True, "", flag_values=values)
        flags.DEFINE_integer("rounds", 10, "", flag_values=values)
        flags.DEFINE_float("alpha", 0.0, "", flag_values=values)
        flags.DEFINE_list("projector", ["8"], "", flag_values=values)
        flags.DEFINE_multi_string("hparam", [], "", flag_values=values)
        flags.DEFINE_multi_string("leave", [], "", flag_values=values)
        flags.DEFINE_string("objective", None, "", flag_values=values)
        return values

    return flag_values


CONFIG = {
    "flags": {
        "script": "pretrain", "output_dir": "elsewhere", "resume": False, "fold": False,
        "dataset": "digits",
        "rounds": 20, "alpha": "inf", "projector": ["4", "2"], "hparam": ["a=1", "b=2"],
        "objective": "cco",
    },
    "given": ["alpha", "fold", "hparam", "output_dir", "projector", "rounds"],
}  # fmt: skip


def test_the_flags_of_a_run_are_given_again(define, monkeypatch):
    args = define()
    monkeypatch.setattr(resuming.flags, "FLAGS", args)
    arguments = resuming.given_flags(CONFIG, [])
    assert arguments == [
        "--alpha=inf", "--nofold", "--hparam=a=1", "--hparam=b=2", "--projector=4,2",
        "--rounds=20",
    ]  # fmt: skip
    args(["pretrain", *arguments, "--rounds=30", "--output_dir=here"])
    resuming.take_over_defaults(CONFIG, args)
    assert (args.alpha, args.fold, args.rounds) == (float("inf"), False, 30)
    assert (args.projector, args.hparam) == (["4", "2"], ["a=1", "b=2"])
    assert args.output_dir == "here"
    # What the run has chosen itself holds, and counts as not given.
    assert args.objective == "cco"
    assert args["rounds"].present
    assert not args["objective"].present


def test_events_of_a_network_that_are_given_again_do_not_add_up(define, monkeypatch):
    args = define()
    monkeypatch.setattr(resuming.flags, "FLAGS", args)
    events = ["2:3", "4:1"]
    config = {"flags": CONFIG["flags"] | {"leave": events}, "given": ["hparam", "leave"]}
    kept = ["--hparam=a=1", "--hparam=b=2"]
    again = [*kept, "--leave=2:3", "--leave=4:1"]
    assert resuming.given_flags(config, ["pretrain", "--resume"]) == again
    assert resuming.given_flags(config, ["pretrain", "--resume", *again]) == kept
    args(["pretrain", *kept, *again])
    assert args.leave == events


def damaged_configs():
    """Contents of a `config.json` that a disk or a person has damaged."""
    whole = json.dumps({"flags": CONFIG["flags"], "given": CONFIG["given"]}).encode()
    chance = random.Random(24)
    yield from (b"", b"[]", b"null", b"7", b'"flags"', b"{}", b"[" * 100_000, b"\xff\xfe{}")
    yield whole + whole
    for name in ("flags", "given"):
        for value in (None, 3, "text", [[]], {"a": 1}, ["nosuch"]):
            yield json.dumps({**json.loads(whole), name: value}).encode()
    for name, value in (("rounds", "many"), ("rounds", [1]), ("alpha", True), ("fold", 2.5)):
        content = json.loads(whole)
        content["flags"][name] = value
        yield json.dumps(content | {"given": []}).encode()
    for _ in range(300):
        position = chance.randrange(len(whole))
        yield whole[:position]
        changed = bytearray(whole)
        changed[position] ^= 1 << chance.randrange(8)
        yield bytes(changed)


@pytest.mark.slow
def test_a_damaged_config_is_one_line_or_a_command_line(define, monkeypatch, tmp_path):
    refused = 0
    for content in damaged_configs():
        (tmp_path / "config.json").write_bytes(content)
        args = define()
        monkeypatch.setattr(resuming.flags, "FLAGS", args)
        try:
            config = resuming.find(["x", "--resume", f"--output_dir={tmp_path}"], "pretrain")
            args(["pretrain", *resuming.given_flags(config, [])])
            resuming.check_algorithm(config, args)
            resuming.take_over_defaults(config, args)
        except (ConfigurationError, flags.Error):
            refused += 1
        assert (tmp_path / "config.json").read_bytes() == content
    assert refused > 300


def test_another_objective_is_refused_at_once(define):
    args = define()
    args(["pretrain", "--objective=vicreg"])
    with pytest.raises(flags.IllegalFlagValueError, match=r"--objective=vicreg: .* has cco"):
        resuming.check_algorithm(CONFIG, args)
    resuming.check_algorithm({}, args)


def test_the_run_is_found_by_its_folder(tmp_path):
    folder = tmp_path / "run"
    resumed = ["x", "--resume", f"--output_dir={folder}"]
    assert resuming.find(resumed, "pretrain") == {}  # There is no run yet.
    folder.mkdir()
    run_folder.write_json(folder / "config.json", CONFIG)
    assert resuming.find(resumed, "pretrain") == CONFIG
    for other in (["--noresume"], ["--resume=false"]):
        assert resuming.find([*resumed, *other], "pretrain") == {}
    assert resuming.find(["x", f"--output_dir={folder}"], "pretrain") == {}
    with pytest.raises(ConfigurationError, match="--resume needs --output_dir=RUN"):
        resuming.find(["x", "--resume"], "pretrain")
    with pytest.raises(ConfigurationError, match=r"holds a run of launch\.pretrain"):
        resuming.find(resumed, "centralized")


def open_again(folder, **changed):
    config = {"script": "pretrain", "rounds": 4, "seed": 0, "eval_every": 2, "hparam": ["a=1"]}
    run_folder.open_run(folder, config | changed, ["rounds", *changed], resume=True)
    return json.loads((folder / "config.json").read_text())


def test_rounds_may_grow_and_what_does_not_touch_training_may_change(tmp_path, capsys):
    assert "rounds_before" not in open_again(tmp_path)
    content = open_again(tmp_path, rounds=6, eval_every=3, hparam=["a=2", "a=1"])
    assert (content["flags"]["rounds"], content["flags"]["eval_every"]) == (6, 3)
    assert content["rounds_before"] == [4]
    assert content["given"] == ["eval_every", "hparam", "rounds"]
    assert "the run had 4 rounds and now has 6" in capsys.readouterr().out
    assert open_again(tmp_path, rounds=9)["rounds_before"] == [4, 6]


@pytest.mark.parametrize(
    ("message", "changed"),
    [("the run has 4 rounds, and --resume can only make them more", {"rounds": 3}),
     (r"--seed=1 \(the run has 0\)", {"seed": 1}),
     (r"--hparam=\['a=2'\]", {"hparam": ["a=2"]})],
)  # fmt: skip
def test_other_changes_are_refused(tmp_path, message, changed):
    before = open_again(tmp_path)
    with pytest.raises(ConfigurationError, match=message):
        open_again(tmp_path, **changed)
    assert json.loads((tmp_path / "config.json").read_text()) == before


def test_rounds_for_which_a_noise_was_computed_cannot_grow(tmp_path):
    open_again(tmp_path, dp_epsilon=8.0)
    with pytest.raises(ConfigurationError, match=r"--rounds=5: the noise .* --dp_epsilon=8\.0"):
        open_again(tmp_path, dp_epsilon=8.0, rounds=5)


def test_the_command_to_resume_a_run_names_its_folder(tmp_path):
    folder = tmp_path / "a run"
    open_again(folder)
    command = run_folder.resume_command(folder)
    assert command.endswith(f" -m launch.pretrain --resume '--output_dir={folder}'")
    assert command in run_folder.commands_to_resume()
