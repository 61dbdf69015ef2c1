"""Keeps a client package loaded: `python package_worker.py PACKAGE SOCKET`.

A request is the name of a function of the package and its arguments, one on each connection. The
socket is private to the user, and `SOCKET.key` has the key with which connections authenticate.
"""

import contextlib
import pathlib
import sys
from multiprocessing import AuthenticationError
from multiprocessing.connection import Listener

from tff_ssl import client

_LOST = (OSError, EOFError, AuthenticationError)


def main(folder: str, socket: str) -> None:
    package = client.load(folder, optimize_graphs=False)
    key = pathlib.Path(socket + ".key").read_bytes()
    with Listener(socket, "AF_UNIX", backlog=128, authkey=key) as listener:
        while True:
            # A process that ends in the middle of its request is the server's to notice.
            with contextlib.suppress(*_LOST), listener.accept() as line:
                name, *arguments = line.recv()
                try:
                    answer = getattr(package, name)(*arguments)
                except Exception as error:
                    answer = RuntimeError(f"{type(error).__name__}: {error}")
                line.send(answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
