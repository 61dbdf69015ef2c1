"""A client package that computes with NumPy: two stages, a memory, and faults of chosen examples.

A folder has `manifest.json`, whose `faults` maps an example to `nan`, `huge`, `shape`, `wait` (for
a minute, after it wrote the file `waits` in the folder) or `stop` (the same in the second stage).
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
        self._fail(stage, self.manifest["faults"].get(str(example_ids[0]), ""))
        fault = self.manifest["faults"].get(str(example_ids[0]))
        mean = images.reshape(len(images), -1)[:, :4].mean(0).astype(np.float32) / 255
        if stage == "statistics":
            up = {"mean": mean * len(images), "examples": np.int64(len(images))}
        else:
            delta = (down["mean"] - mean) * down["weights"] + np.float32(memory["seen"] / 100)
            up = {"delta": delta * len(images), "examples": np.int64(len(images))}
            memory = {"seen": memory["seen"] + 1}
        values = {"nan": np.nan, "huge": np.float32(3e38)}
        name = next(iter(up))
        if fault in values:
            up[name] = np.full(4, values[fault], np.float32)
        if fault == "shape":
            up[name] = up[name][:2]
        return up, memory

    def _fail(self, stage, fault):
        if fault == {"statistics": "wait", "update": "stop"}[stage]:
            (self.folder / "waits").touch()
            time.sleep(60)

    def finish(self, stage, state, sums):
        examples = max(int(sums["examples"]), 1)
        if stage == "statistics":
            return state | {"mean": sums["mean"] / np.float32(examples)}, {}
        state = {
            "weights": state["weights"] - sums["delta"] / np.float32(examples),
            "round": state["round"] + 1,
        }
        return state, {"samples": float(examples)}


def load(folder):
    return FakePackage(folder)


def manifest(faults):
    """The manifest of a package with these faults."""
    number = {"shape": [], "dtype": "int64"}
    vector = {"shape": [4], "dtype": "float32"}
    uploads = {
        "statistics": {"mean": vector, "examples": number},
        "update": {"delta": vector, "examples": number},
    }
    return {"uploads": uploads, "faults": faults}
