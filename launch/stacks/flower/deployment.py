"""A SuperLink and its SuperNodes on the loopback, with TLS and node authentication."""

import contextlib
import json
import os
import pathlib
import re
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import psutil

from launch.stacks.flower import environment
from tff_ssl import whole_files
from tff_ssl.errors import TrainingError
from tff_ssl.runtime import child_process, process_memory

HOST = "127.0.0.1"
_START_SECONDS = 180  # For a program to listen.
_ROOT = pathlib.Path(__file__).parents[3]  # Where the app finds `tff_ssl`.
_LISTENING = 0.2  # Seconds between two looks at a port.
# Times the number of nodes: seconds between two looks of a node for messages that have arrived.
_POLL_SECONDS = 1 / 32


class Deployment:
    """The processes of a deployment; a context manager that ends all of them.

    Attributes:
      node_ids: Flower's ids of the nodes, in order.
      nodes: The process of each node that was started.
      link: The process of the SuperLink.
    """

    def __init__(
        self, folder: pathlib.Path, num_nodes: int, python_path: Sequence[str] = (),
        restarts: bool = False,
    ):  # fmt: skip
        """Makes the credentials, starts the SuperLink and registers the nodes.

        Args:
          folder: Folder for credentials, SuperLink's database and logs; private to the user.
          num_nodes: Number of SuperNodes.
          python_path: Folders in which the app's imports are looked up before the project's.
          restarts: Whether the SuperLink keeps nodes and messages in a file, so that it can be
            started again. Flower 1.42 loses messages of many nodes there, when they lock the
            database; otherwise they stay in memory.
        """
        self._folder, self._bin, self._restarts = folder, environment.make(), restarts
        self._started: list[subprocess.Popen] = []
        self._scratch = tempfile.TemporaryDirectory(prefix="flower_")  # Short, for sockets.
        self._port = free_port()
        self.nodes: list[subprocess.Popen] = []
        self._environment = os.environ | {
            "PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([*python_path, str(_ROOT)]),
            "FLWR_HOME": str(folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": str(max(0.25, num_nodes * _POLL_SECONDS)),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        for name in ("home", "logs"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        (folder / "home" / "config.toml").write_text(
            '[superlink]\ndefault = "link"\n[superlink.link]\n'
            f'address = "{HOST}:{self._port}"\n'
            f"root-certificates = {json.dumps(self._at('authority.crt'))}\n"
        )
        try:
            self._program("credentials.py", "make", str(folder), str(num_nodes))
            self.start_link()
            answer = self._program("credentials.py", "register", str(folder), str(num_nodes))
            self.node_ids: list[str] = re.findall(r'"node-id": (\d+)', answer)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Deployment":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start_link(self) -> None:
        """Starts the SuperLink; again with the same port and, if it `restarts`, database."""
        arguments = ["--host", HOST, "--port", str(self._port), "--enable-supernode-auth"]
        arguments += ["--ssl-ca-certfile", self._at("authority.crt")]
        arguments += ["--ssl-certfile", self._at("link.crt"), "--ssl-keyfile", self._at("link.key")]
        arguments += ["--disable-runtime-dependency-installation"]
        arguments += ["--database", self._at("link.db")] if self._restarts else []
        self.link = self._start("superlink", "flower-superlink", *arguments)
        wait_for_port(self.link, self._port, self._at("logs/superlink.log"))

    def start_workers(self, package: pathlib.Path, count: int) -> list[str]:
        """Starts processes that keep the package loaded; returns their sockets."""
        sockets = []
        for number in range(count):
            path = f"{self._scratch.name}/{number}"
            whole_files.write(f"{path}.key", secrets.token_bytes(32), private=True)
            program = environment.APP / "package_worker.py"
            self._start(f"worker_{number}", "python", str(program), str(package), path)
            sockets.append(path)
        return sockets

    def start_node(self, number: int, **config: str) -> None:
        """Starts the next SuperNode, which has `config` as its node configuration."""
        settings = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
        arguments = ["--superlink", f"{HOST}:{self._port}", "--host", HOST]
        arguments += ["--port", str(free_port()), "--node-config", settings]
        arguments += ["--root-certificates", self._at("authority.crt")]
        arguments += ["--auth-supernode-private-key", self._at(f"node_{number}.key")]
        self.nodes.append(self._start(f"node_{number}", "flower-supernode", *arguments))

    def start_run(self, run: pathlib.Path) -> str:
        """Starts the app with the folder of a run; returns Flower's id of the run."""
        config = f"run={json.dumps(str(run))}"
        command = ["run", str(environment.APP), "link", "--run-config", config]
        answer = json.loads(self._flwr(*command))
        if not answer.get("success"):
            raise TrainingError(f"Flower did not start the run: {answer.get('error-message')}")
        return answer["run-id"]

    def status(self, run_id: str) -> dict[str, Any]:
        """What Flower says of a run: `status`, and the bytes that went to and from the nodes."""
        return json.loads(self._flwr("list", "link", "--run-id", run_id))["runs"][0]

    def log(self, run_id: str) -> str:
        """The log of a run's ServerApp."""
        return self._program("flwr", "log", run_id, "link", "--show")

    def kill(self, process: subprocess.Popen) -> None:
        """Ends a process and all that it started, at once."""
        tree = list(process_memory.process_tree(process.pid))
        for one in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # Those whose parent has ended.
        process.wait()
        psutil.wait_procs(tree)

    def close(self) -> None:
        """Ends all processes, and removes the sockets."""
        for process in reversed(self._started):
            self.kill(process)
        self._kill_detached()
        self._scratch.cleanup()

    def _kill_detached(self) -> None:
        """Ends what Flower has started in other sessions, and whose parents have ended."""
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if one.environ().get("FLWR_HOME") == self._environment["FLWR_HOME"]:
                    one.kill()

    def _at(self, name: str) -> str:
        return str(self._folder / name)

    def _start(self, name: str, program: str, *arguments: str) -> subprocess.Popen:
        """Starts a program of the environment in a session of its own."""
        with open(self._at(f"logs/{name}.log"), "a") as log:
            process = child_process.start(
                [str(self._bin / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,  # Ctrl-C must not reach it; `close` ends it.
            )
        self._started.append(process)
        return process

    def _program(self, program: str, *arguments: str) -> str:
        """Runs a program of the environment or the app; returns what it printed."""
        is_python = program.endswith(".py")
        first = ["python", str(environment.APP / program)] if is_python else [program]
        command = [str(self._bin / first[0]), *first[1:], *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self._environment, cwd=self._scratch.name
        )
        if done.returncode:
            lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            raise TrainingError(f"{program} ended: {(lines or ['no error given'])[-1].strip()}")
        return done.stdout

    def _flwr(self, *arguments: str) -> str:
        return self._program("flwr", *arguments, "--format", "json")


def free_port() -> int:
    """A port of the loopback that is free now."""
    with socket.socket() as one:
        one.bind((HOST, 0))
        return one.getsockname()[1]


def wait_for_port(process: subprocess.Popen, port: int, log: str) -> None:
    """Waits until a process listens.

    Raises:
      TrainingError: If it ends, or does not listen in time.
    """
    end = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            return
        time.sleep(_LISTENING)
    raise TrainingError(f"{HOST}:{port} does not answer: see {log}")
