"""A client package that computes with NumPy: two stages, a memory, and faults of chosen examples.

A folder has `manifest.json`, whose `faults` map the first example of a client to `nan`, `shape`,
or to a stage. In that stage, work writes the file `waits` in the folder, and ends when there is
a file `goes`, or in two minutes.
"""

import json
import pathlib
import time

import numpy as np


class FakePackage:
    stages = ("statistics", "update")

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.manifest = json.loads((self.folder / "manifest.json").read_text())

    def initial_state(self):
        return {"weights": np.linspace(-1, 1, 4, dtype=np.float32), "round": np.int64(0)}

    def initial_memory(self):
        return {"seen": np.int64(0)}

    def broadcast(self, stage, state):
        return dict(state)

    def work(self, stage, down, memory, images, example_ids, seed):
        fault = self.manifest["faults"].get(str(example_ids[0]))
        if fault == stage:
            self._wait()
        mean = images.reshape(len(images), -1)[:, :4].mean(0).astype(np.float32) / 255
        if stage == "statistics":
            up = {"mean": mean * len(images), "examples": np.int64(len(images))}
        else:
            delta = (down["mean"] - mean) * down["weights"] + np.float32(memory["seen"] / 100)
            up = {"delta": delta * len(images), "examples": np.int64(len(images))}
            memory = {"seen": memory["seen"] + 1}
        name = next(iter(up))
        if fault == "nan":
            up[name] = np.full(4, np.nan, np.float32)
        if fault == "shape":
            up[name] = up[name][:2]
        return up, memory

    def _wait(self):
        (self.folder / "waits").touch()
        end = time.monotonic() + 120
        while time.monotonic() < end and not (self.folder / "goes").exists():
            time.sleep(0.1)

    def finish(self, stage, state, sums):
        examples = max(int(sums["examples"]), 1)
        if stage == "statistics":
            return state | {"mean": sums["mean"] / np.float32(examples)}, {}
        state = {
            "weights": state["weights"] - sums["delta"] / np.float32(examples),
            "round": state["round"] + 1,
        }
        return state, {"samples": float(examples)}


def load(folder, optimize_graphs=True):
    return FakePackage(folder)


def manifest(faults):
    """The manifest of a package with these faults."""
    examples = {"name": "examples", "shape": [], "dtype": "int64"}
    stages = [
        {"name": stage, "up": [{"name": name, "shape": [4], "dtype": "float32"}, examples]}
        for stage, name in (("statistics", "mean"), ("update", "delta"))
    ]
    return {"stages": stages, "faults": faults}
