"""A proxy before an S3 server that answers some requests with seeded faults. Host and signature pass unchanged."""

from __future__ import annotations

import http.client
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAULTS = (
    "500",  # the request is not carried out
    "503",  # Slow Down
    "reset",  # before anything is read
    "reset in the request",  # in the middle of its body
    "lost",  # carried out, then a reset in place of the answer
    "lost, 500",  # carried out, then answered by an error
    "cut",  # the answer ends in the middle of its body
    "reset in the answer",
    "slow",  # the answer comes in small pieces
    "stalled",  # no answer for longer than the client waits
)
_ERRORS = {"500": ("500 Internal Server Error", "InternalError"), "503": ("503 Slow Down", "SlowDown")}
Chooser = Callable[[str, str, int], str | None]  # method, path, number of the request: fault or None


def at_random(seed: int, rate: float, faults: tuple[str, ...] = FAULTS[:-1]) -> Chooser:
    """Any of ``faults`` at ``rate``."""

    def choose(_method: str, _path: str, number: int) -> str | None:
        draw = random.Random(f"{seed} {number}")
        return draw.choice(faults) if draw.random() < rate else None

    return choose


@contextmanager
def faulty(upstream: int, choose: Chooser, stall: float = 20.0) -> Iterator[tuple[int, Counter[str]]]:
    """A proxy on a free port before ``127.0.0.1:upstream``; yields its port and the faults it has made so far."""
    made: Counter[str] = Counter()
    server = _Server(("127.0.0.1", 0), _Handler)
    server.upstream, server.choose, server.stall, server.made = upstream, choose, stall, made
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1], made
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.numbers, self.lock, self.over = 0, threading.Lock(), threading.Event()

    def next_fault(self, method: str, path: str) -> str | None:
        with self.lock:
            self.numbers += 1
            fault = self.choose(method, path, self.numbers)
            if fault is not None:
                self.made[fault] += 1
            return fault

    def handle_error(self, *_: Any) -> None:
        """A client that goes away is what is asked for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        self.pass_on(self.server.next_fault(self.command, self.path))

    def pass_on(self, fault: str | None) -> None:
        length = int(self.headers.get("Content-Length", 0))
        if fault == "stalled":
            self.server.over.wait(self.server.stall)
        if fault in ("reset", "stalled"):
            return self.reset()
        body = self.rfile.read(length // 2 if fault == "reset in the request" else length)
        if fault == "reset in the request":
            return self.reset()
        if fault in _ERRORS:
            return self.refuse(fault)
        status, headers, answer = self.ask(body)
        if fault == "lost":
            return self.reset()
        if fault == "lost, 500":
            return self.refuse("500")
        self.answer(status, headers, answer, fault)
        return None

    def ask(self, body: bytes) -> tuple[str, list[tuple[str, str]], bytes]:
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=60)
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("connection", "expect"):
                upstream.putheader(name, value)
        upstream.endheaders(body)
        response = upstream.getresponse()
        answer = response.read()
        upstream.close()
        kept = [(n, v) for n, v in response.getheaders() if n.lower() not in ("transfer-encoding", "connection")]
        if not any(name.lower() == "content-length" for name, _ in kept):
            kept.append(("Content-Length", str(len(answer))))
        return f"{response.status} {response.reason}", kept, answer

    def answer(self, status: str, headers: list[tuple[str, str]], body: bytes, fault: str | None) -> None:
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers), "", ""]
        self.wfile.write("\r\n".join(lines).encode("latin-1"))
        if fault in ("cut", "reset in the answer") and body:
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.close_connection = True
            if fault == "reset in the answer":
                time.sleep(0.05)  # a reset overtakes what is still on its way
                self.reset()
            return
        pieces = 10 if fault == "slow" else 1
        size = max(1, -(-len(body) // pieces))
        for start in range(0, len(body), size):
            self.wfile.write(body[start : start + size])
            self.wfile.flush()
            time.sleep(0.05 if fault == "slow" else 0)

    def refuse(self, kind: str) -> None:
        status, code = _ERRORS[kind]
        body = (
            b"" if self.command == "HEAD" else f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        )
        self.answer(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))], body, None)

    def reset(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def log_message(self, *_: Any) -> None:
        """Quiet."""
