"""A server of data sets on the loopback, which also breaks off, lies and refuses."""

import gzip
import hashlib
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from snnlib.data.datasets.published import PUBLIC


@dataclass
class Host:
    """A server: its files, what it does with each, and what was asked of it."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, Callable[[Any, bytes], None]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Runs a server on the loopback within the block."""
    own = Host()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(own.files.get(self.path[1:], b""))))
            self.end_headers()

        def do_GET(self) -> None:
            name = self.path[1:]
            own.asked.append(name)
            if name in own.faults:
                own.faults[name](self, own.files.get(name, b""))
            elif name in own.files:
                answer(self, own.files[name])
            else:
                self.send_error(404)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    own.url = f"http://127.0.0.1:{server.server_address[1]}/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    # Machines behind a proxy would ask it for the loopback too.
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield own
    server.shutdown()
    server.server_close()
    thread.join()


def answer(handler: BaseHTTPRequestHandler, body: bytes, length: int | None = None) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body) if length is None else length))
    handler.end_headers()
    handler.wfile.write(body)


def md5(data: bytes) -> str:
    return f"md5:{hashlib.md5(data).hexdigest()}"


def idx(values: bytes, *shape: int) -> bytes:
    return gzip.compress(struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape) + values)


def serve_mnist(host: Host, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Serves MNIST of twelve images under its own names."""
    for part in ("train", "t10k"):
        host.files[f"{part}-images-idx3-ubyte.gz"] = idx(bytes(range(48)), 12, 2, 2)
        host.files[f"{part}-labels-idx1-ubyte.gz"] = idx(bytes(range(10)) + b"\0\1", 12)
    files = tuple(replace(file, checksum=md5(host.files[file.name])) for file in PUBLIC["mnist"].files)
    monkeypatch.setitem(PUBLIC, "mnist", replace(PUBLIC["mnist"], host=host.url, files=files))
    return host


def status(code: int) -> Callable[[Any, bytes], None]:
    return lambda handler, body: handler.send_error(code)


def serve(host: Host, monkeypatch: pytest.MonkeyPatch, name: str, files: dict[str, bytes]) -> None:
    host.files |= files
    listed = tuple(replace(file, checksum=md5(files[file.name])) for file in PUBLIC[name].files)
    monkeypatch.setitem(PUBLIC, name, replace(PUBLIC[name], host=host.url, files=listed))
