"""Checks that a run which is resumed is the run that was begun: its flags, its data, its files."""

import hashlib
import json
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

from tff_ssl.errors import ConfigurationError

# Flags that may change when a run is resumed: they do not change its weights. `--rounds` may grow.
_CHANGEABLE_FLAGS = {
    "resume", "output_dir", "data_dir", "checkpoint_every", "list", "max_concurrent_calls",
    "max_dropped", "round_timeout", "ray", "eval_every", "labels_per_class", "labels",
    "label_draws", "baselines", "per_case", "probe", "also_logistic", "personalized_clients",
    "require_private_worker",
}  # fmt: skip


def check_script(folder: pathlib.Path, before: Mapping[str, Any], script: str | None) -> None:
    """Checks that the flags of the run in a folder are those of a script."""
    other = before.get("script")
    if other != script:
        raise ConfigurationError(
            f"--output_dir={folder} holds a run of launch.{other}: name another folder"
        )


def check_unchanged(folder: pathlib.Path, content: Mapping[str, Any]) -> None:
    """Checks that the `config.json` of a run, from `read_config`, is as the run wrote it."""
    if content["is_changed"]:
        raise ConfigurationError(
            f"{folder / 'config.json'} was changed since the run wrote it: put back a whole one, "
            "or start the run anew in another --output_dir; flags are changed on the command line"
        )


def check(
    folder: pathlib.Path,
    content: Mapping[str, Any],
    config: Mapping[str, Any],
    given: Collection[str],
    data: Mapping[str, str],
) -> None:
    """Checks that the run in a folder has these settings and data.

    Args:
      content: Result of `run_folder.read_config`.
      config: The flags by name.
      given: Names of the flags that are given.
      data: Hashes of the parts of the data set by their names; empty if they are not known.
    """
    before = content["flags"]
    check_script(folder, before, config.get("script"))
    names = (before.keys() | config.keys()) - _CHANGEABLE_FLAGS - {"rounds"}
    different = [n for n in sorted(names) if comparable(before, n) != comparable(config, n)]
    # What depends on the images, such as the size of a cohort, changes with them.
    digests = content.get("data_digests", {})
    parts = [part for part in digests if data.get(part) != digests[part]]
    if data and parts and not set(different) & set(given):
        name = "dataset" if config.get("dataset") else "data_dir"
        listed = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
        raise ConfigurationError(
            f"--resume: {listed} of --{name}={config.get(name)} are not those "
            f"with which {folder} was begun: put them back, or start anew in another --output_dir"
        )
    if different:
        differences = [f"--{n}={config.get(n)} (the run has {before.get(n)})" for n in different]
        raise ConfigurationError(
            f"--resume with other settings than the run's: {'; '.join(differences)}"
        )
    if config.get("ray") and not (before.get("ray") or before.get("slices")):
        raise ConfigurationError(
            "--ray: the rounds of the run are not cut into slices, as those with --ray are, so "
            "that the results would differ: continue it without --ray"
        )
    _check_rounds(before, config)


def comparable(config: Mapping[str, Any], name: str) -> Any:
    """A flag's value; only the last one of a hyperparameter that is given several times.

    A flag that is false is as one that the run does not know, because it was added later.
    """
    value = config.get(name) or None if isinstance(config.get(name), bool) else config.get(name)
    if name == "hparam" and isinstance(value, list):
        pairs = (text.partition("=")[::2] for text in value)
        return {name.strip().rstrip("_"): _number_or_text(text) for name, text in pairs}
    return value


def _number_or_text(text: str) -> float | str:
    """The number that a text means, so that 10 and 10.0 are equal; another text as it is."""
    try:
        return float(text)
    except ValueError:
        return text.strip()


def _check_rounds(before: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Checks that the rounds are not fewer than before, nor more than the noise allows."""
    rounds, were = config.get("rounds"), before.get("rounds")
    if rounds == were or rounds is None or were is None:
        return
    if rounds < were:
        raise ConfigurationError(
            f"--rounds={rounds}: the run has {were} rounds, and --resume can only add rounds"
        )
    if config.get("dp_epsilon") not in (None, "inf"):
        raise ConfigurationError(
            f"--rounds={rounds}: the noise of the run's {were} rounds was computed for "
            f"--dp_epsilon={config['dp_epsilon']} after all of them; more rounds would spend more"
        )


def training_digest(flags: Mapping[str, Any]) -> str:
    """A hash of the flags of a run on which its training depends."""
    fixed = {name: comparable(flags, name) for name in flags.keys() - _CHANGEABLE_FLAGS}
    # A flag that a later release adds is not given in an earlier run.
    return digest({n: v for n, v in fixed.items() if v is not None and n != "rounds"})


def digest(content: Mapping[str, Any]) -> str:
    """A hash, in hexadecimal, of a content of JSON."""
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()
