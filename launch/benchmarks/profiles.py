"""Where the time of a step goes, by TensorFlow's profiler."""

import collections
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

_MOST = 8  # kernels and operations that are listed


def profile(step: Callable[[], object], steps: int = 2) -> dict[str, Any]:
    """Profiles some steps.

    Returns:
      For the host and each stream of a GPU: the events of a step, their milliseconds, the
      milliseconds from the first to the last, and the longest kinds of events, [name, count,
      milliseconds]. For streams also the milliseconds without an event, and the copies from the GPU
      to the host, [count, milliseconds].
    """
    import tensorflow as tf

    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, device_tracer_level=1)
    with tempfile.TemporaryDirectory(prefix="tff_ssl_profile_") as folder:
        with tf.profiler.experimental.Profile(folder, options):
            for _ in range(steps):
                step()
        return _read(folder, steps)


def _read(folder: str, steps: int) -> dict[str, Any]:
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    found: dict[str, Any] = {}
    for path in pathlib.Path(folder).rglob("*.xplane.pb"):
        space = xplane_pb2.XSpace.FromString(path.read_bytes())
        for plane in space.planes:
            if "metadata" in plane.name:
                continue
            if "CPU" in plane.name:
                found["host"] = _summary(plane, plane.lines, steps)
            else:
                for line in plane.lines:
                    stream = _summary(plane, [line], steps, is_device=True)
                    found[f"{plane.name} {line.name}"] = stream
    return {name: summary for name, summary in found.items() if summary["events"]}


def _kernel(name: str) -> str:
    """A kernel's name without its return type, template arguments and parameters."""
    return name.split("<")[0].split("(")[0].removeprefix("void ").strip()


def _summary(plane: Any, lines: Any, steps: int, is_device: bool = False) -> dict[str, Any]:
    counts: collections.Counter[str] = collections.Counter()
    picoseconds: collections.Counter[str] = collections.Counter()
    starts, ends = [], []
    for line in lines:
        for event in line.events:
            name = plane.event_metadata[event.metadata_id].name
            name = _kernel(name) if is_device else name.split(":")[-1].split("#")[0]
            name = name[:80]
            counts[name] += 1
            picoseconds[name] += event.duration_ps
            starts.append(line.timestamp_ns * 1000 + event.offset_ps)
            ends.append(starts[-1] + event.duration_ps)
    scale = 1e9 * steps
    to_host = [name for name in counts if "MemcpyD2H" in name]
    span = max(ends) - min(starts) if starts else 0
    of_device = {
        "idle_milliseconds": (span - sum(picoseconds.values())) / scale,
        "to_host": [
            sum(counts[name] for name in to_host) / steps,
            sum(picoseconds[name] for name in to_host) / scale,
        ],
    }
    return {
        "events": sum(counts.values()) / steps,
        "milliseconds": sum(picoseconds.values()) / scale,
        "span_milliseconds": span / scale,
        "longest": [
            [name, counts[name] / steps, total / scale]
            for name, total in picoseconds.most_common(_MOST)
        ],
    } | (of_device if is_device else {})
