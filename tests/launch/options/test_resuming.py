"""Resuming a run with nothing but its folder."""

import json
import random

import pytest
from absl import flags

from launch.options import command_line, defaults, resuming, settings
from launch.options.run_config import RunConfig
from launch.outputs import run_folder
from tests.launch import configs
from tff_ssl.errors import ConfigurationError

CONFIG = {
    "script": "pretrain", "output": {"output_dir": "elsewhere", "resume": False, "seed": 1},
    "algorithm": {"objective": "cco", "hparam": ["a=1", "b=2"]},
    "clients": {"alpha": "inf", "balance_sizes": False}, "data": {"dataset": "digits"},
    "participation": {"rounds": 20, "dropout": 0.1}, "model": {"projector": [4, 2]},
    "network": {"leave": []},
    "given": ["alpha", "balance_sizes", "hparam", "output_dir", "projector", "rounds"],
}  # fmt: skip


def read(folder, content):
    """What `run_folder.read_config` reads of this `config.json`."""
    run_folder.write_json(folder / "config.json", content)
    return run_folder.read_config(folder)


def resumed(content, *arguments):
    """The configuration of a run that is resumed with further arguments."""
    return command_line.parse(RunConfig, "pretrain", ["x", *arguments], content)[0]


def test_the_flags_of_a_run_hold_where_others_are_not_given(tmp_path):
    content = read(tmp_path, CONFIG)
    config = resumed(content, "--rounds=30", "--output_dir=here", "--hparam=b=3")
    assert (config.clients.alpha, config.clients.balance_sizes) == (float("inf"), False)
    assert config.model.projector == (4, 2)
    assert config.algorithm.hparam == ("a=1", "b=2", "b=3")  # Of each, the last value counts.
    assert (config.rounds, config.output.output_dir) == (30, "here")
    # What the run has chosen itself holds, and counts as not given.
    assert (config.objective, config.seed, config.participation.dropout) == ("cco", 1, 0.1)
    assert config.given >= {"rounds", "alpha", "balance_sizes", "projector", "hparam"}
    assert not config.given & {"objective", "seed", "dropout"}
    assert resumed(content).algorithm.hparam == ("a=1", "b=2")


def test_events_of_a_network_that_are_given_again_do_not_add_up(tmp_path):
    events = ("2:3", "4:1")
    content = read(tmp_path, {**CONFIG, "network": {"leave": events}, "given": ["hparam", "leave"]})
    assert resumed(content).network.leave == events
    assert resumed(content, "--leave=2:3", "--leave=4:1").network.leave == events


def test_the_flags_of_a_configuration_as_a_command_line_gives_them():
    given = ["--alpha=inf", "--nobalance_sizes", "--hparam=a=1", "--hparam=b=2", "--labels=3,4"]
    config = configs.run(*given, "--seed=3")
    assert resuming.as_arguments(config, config.given - {"seed"}) == given
    assert configs.run(*given) == configs.run(
        *resuming.as_arguments(config, set(config.given) - {"seed"})
    )
    assert resuming.as_arguments(config, ["beta"]) == []


@pytest.mark.parametrize(
    "flags",
    [
        ["--alpha=0.1", "--dp_epsilon=inf", "--labels=3,70", "--projector=", "--per_case"],
        ["--hparam=a=1", "--hparam=b=x", "--cut=1:2-3", "--connectivity=1e-17", "--ray=local:2"],
    ],
)
def test_a_configuration_survives_its_file(tmp_path, flags):
    config = configs.run(*flags)
    run_folder.open_run(tmp_path / "run", settings.to_json(config), config.given, resume=False)
    assert resuming.read_run(tmp_path / "run") == defaults.resolve(config, None)


def test_a_run_of_an_earlier_release_is_read_and_not_resumed(tmp_path):
    flags = {"script": "pretrain", "alpha": "inf", "labels_per_class": ["2"], "dataset": "digits",
             "views": None, "view_size": 8, "objective": "cco"}  # fmt: skip
    run_folder.write_json(tmp_path / "config.json", {"flags": flags, "given": ["view_size"]})
    run = resuming.read_run(tmp_path)
    assert (run.clients.alpha, run.evaluation.labels_per_class) == (float("inf"), (2,))
    assert (run.model.views, run.model.view_size) == ("affine", 8)
    with pytest.raises(ConfigurationError, match="a run of an earlier release"):
        resuming.find(["x", "--resume", f"--output_dir={tmp_path}"], "pretrain")


def damaged_configs():
    """Contents of a `config.json` that a disk or a person has damaged."""
    whole = json.dumps(CONFIG).encode()
    chance = random.Random(24)
    yield from (b"", b"[]", b"null", b"7", b'"flags"', b"{}", b"[" * 100_000, b"\xff\xfe{}")
    yield whole + whole
    for value in (3, "text", [[]], ["nosuch"]):
        yield json.dumps(CONFIG | {"given": value}).encode()
    for section, name, value in (
        ("participation", "rounds", "many"), ("participation", "rounds", [1]),
        ("clients", "alpha", True), ("clients", "balance_sizes", 2.5), ("model", "projector", 3),
        ("model", "projector", ["x"]), ("algorithm", "objective", 3),
    ):  # fmt: skip
        content = json.loads(whole)
        content[section][name] = value
        yield json.dumps(content | {"given": []}).encode()
    for _ in range(300):
        position = chance.randrange(len(whole))
        yield whole[:position]
        changed = bytearray(whole)
        changed[position] ^= 1 << chance.randrange(8)
        yield bytes(changed)


@pytest.mark.slow
def test_a_damaged_config_is_one_line_or_a_command_line(tmp_path):
    refused = 0
    for content in damaged_configs():
        (tmp_path / "config.json").write_bytes(content)
        try:
            found = resuming.find(["x", "--resume", f"--output_dir={tmp_path}"], "pretrain")
            resumed(found)
        except (ConfigurationError, flags.Error):
            refused += 1
        assert (tmp_path / "config.json").read_bytes() == content
    assert refused > 300


def test_another_objective_is_refused_at_once(tmp_path):
    content = read(tmp_path, CONFIG)
    with pytest.raises(flags.IllegalFlagValueError, match=r"--objective=vicreg: .* has cco"):
        resumed(content, "--objective=vicreg")
    assert resumed(content, "--objective=cco").objective == "cco"


def test_the_run_is_found_by_its_folder(tmp_path):
    folder = tmp_path / "run"
    resumed = ["x", "--resume", f"--output_dir={folder}"]
    with pytest.raises(ConfigurationError, match=r"--resume: --output_dir=.*/run does not exist"):
        resuming.find(resumed, "pretrain")
    folder.mkdir()
    assert resuming.find(resumed, "pretrain") == {}  # It holds no run yet.
    run_folder.write_json(folder / "config.json", CONFIG)
    found = resuming.find(resumed, "pretrain")
    assert (found["flags"]["rounds"], found["given"]) == (20, CONFIG["given"])
    for other in (["--noresume"], ["--resume=false"]):
        assert resuming.find([*resumed, *other], "pretrain") == {}
    assert resuming.find(["x", f"--output_dir={folder}"], "pretrain") == {}
    with pytest.raises(ConfigurationError, match="--resume needs --output_dir=RUN"):
        resuming.find(["x", "--resume"], "pretrain")
    with pytest.raises(ConfigurationError, match=r"holds a run of launch\.pretrain"):
        resuming.find(resumed, "centralized")


def open_again(folder, **changed):
    config = {"script": "pretrain", "rounds": 4, "output": {"seed": 0}, "eval_every": 2,
              "algorithm": {"hparam": ["a=1"]}}  # fmt: skip
    for name, value in changed.items():
        section = {"seed": "output", "hparam": "algorithm"}.get(name)
        (config[section] if section else config)[name] = value
    run_folder.open_run(folder, config, ["rounds", *changed], resume=True)
    return json.loads((folder / "config.json").read_text())


def test_rounds_may_grow_and_what_does_not_touch_training_may_change(tmp_path, capsys):
    assert "rounds_before" not in open_again(tmp_path)
    content = open_again(tmp_path, rounds=6, eval_every=3, hparam=["a=2", "a=1"])
    assert (content["rounds"], content["eval_every"]) == (6, 3)
    assert content["rounds_before"] == [4]
    assert content["given"] == ["eval_every", "hparam", "rounds"]
    assert "the run had 4 rounds and now has 6" in capsys.readouterr().out
    assert open_again(tmp_path, rounds=9)["rounds_before"] == [4, 6]


@pytest.mark.parametrize(
    ("message", "changed"),
    [("the run has 4 rounds, and --resume can only add rounds", {"rounds": 3}),
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
