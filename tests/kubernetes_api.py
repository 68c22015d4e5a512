"""A small Kubernetes API over real HTTP: the two kinds of jobs, pods, nodes and logs, with watch streams.

It keeps the rules that clients trip over: names are unique, every change raises the resource version, a watch goes
on from a version or is told 410 Gone, a foreground deletion ends when all pods are gone, preconditions are kept.
What operator and kubelet would do, a test does: ``add_pod``, ``update``, ``finish_deletions``.
"""

from __future__ import annotations

import copy
import json
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]

_PATHS = [
    re.compile(r"/apis/(?P<group>[^/]+)/v1/namespaces/(?P<space>[^/]+)/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?"),
    re.compile(
        r"/api/v1/namespaces/(?P<space>[^/]+)/(?P<plural>pods)(?:/(?P<name>[^/]+)(?P<log>/log)?)?",
    ),
    re.compile(r"/api/v1/(?P<plural>nodes)/(?P<name>[^/]+)"),
]


class KubernetesApi:
    """The state, which outlives restarts of the server, and what a test does to it."""

    def __init__(self) -> None:
        self.kinds = {"hyperpodpytorchjobs", "pytorchjobs", "pods", "nodes"}  # take one out: its definition is absent
        self.objects: dict[tuple[str, str], Object] = {}  # by plural and name
        self.logs: dict[str, str] = {}  # by pod
        self.requests: list[tuple[str, str]] = []  # method and path with query
        self.tokens: list[str] = []  # of each request
        self.faults: list[Callable[[str, str], tuple[int, str] | None]] = []  # of a request: status and message
        self.finish_deletions = True  # at once; otherwise pods stay as long as their nodes do not answer
        self.slow = 0.0  # seconds before each answer
        self.cut_watches = False  # streams end without a word
        self._version = 100
        self._events: list[tuple[int, str, Object]] = []  # version, type, object
        self._oldest = 0  # versions below are compacted
        self._changed = threading.Condition(threading.RLock())
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @contextmanager
    def running(self, kubeconfig: Path) -> Iterator[None]:
        """Served while the block runs, under an address that ``kubeconfig`` holds."""
        self.start()
        named = {"name": "test", "context": {"cluster": "test", "user": "test"}}
        clusters = [{"name": "test", "cluster": {"server": self.address}}]
        users = [{"name": "test", "user": {}}]
        kubeconfig.write_text(
            json.dumps({"current-context": "test", "contexts": [named], "clusters": clusters, "users": users})
        )
        try:
            yield
        finally:
            self.stop()

    def start(self) -> None:
        """Serve; after ``stop`` on the same port, with the same state."""
        self._server = _Server(("127.0.0.1", self._port), _handler_of(self))
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        """Drop every connection, those of watches too."""
        if self._server:
            self._server.shutdown()
            self._server.drop_connections()
            self._server.server_close()
            self._server = None

    def compact(self) -> None:
        """Forget the past: a watch from a version before now is told 410 Gone."""
        with self._changed:
            self._events.clear()
            self._oldest = self._version = self._version + 10

    def jobs(self) -> list[Object]:
        with self._changed:
            return [copy.deepcopy(o) for (plural, _), o in self.objects.items() if plural.endswith("jobs")]

    def create(self, plural: str, item: Object) -> Object:
        with self._changed:
            name = item["metadata"]["name"]
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            item["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": stamp}
            self.objects[plural, name] = item
            self._record("ADDED", plural, item)
            return item

    def update(self, plural: str, name: str, **fields: Any) -> None:
        """Replace top-level fields, such as the status."""
        with self._changed:
            item = self.objects[plural, name]
            item |= fields
            self._record("MODIFIED", plural, item)

    def delete(self, plural: str, name: str) -> None:
        """As the garbage collector: the object is gone."""
        with self._changed:
            item = self.objects.pop((plural, name))
            self._record("DELETED", plural, item)

    def add_pod(self, job: Object, name: str, node: str, status: Object, **metadata: Any) -> None:
        labels = self._template(job)["metadata"]["labels"] | metadata.pop("labels", {})
        spec = {"nodeName": node, "containers": [{"name": "pytorch", "image": "i"}]}
        meta = {"name": name, "namespace": job["metadata"]["namespace"], "labels": labels, **metadata}
        self.create("pods", {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": spec, "status": status})

    def add_node(self, name: str, ready: bool = True, **labels: str) -> None:
        conditions = [{"type": "Ready", "status": "True" if ready else "Unknown"}]
        meta = {"name": name, "labels": labels}
        self.create("nodes", {"kind": "Node", "metadata": meta, "status": {"conditions": conditions}})

    @staticmethod
    def _template(job: Object) -> Object:
        spec = job["spec"]
        return (spec.get("replicaSpecs") or [spec.get("pytorchReplicaSpecs", {}).get("Worker")])[0]["template"]

    def _record(self, kind: str, plural: str, item: Object) -> None:
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self._events.append((self._version, kind, {"plural": plural, "object": copy.deepcopy(item)}))
        self._changed.notify_all()

    # what clients ask for

    def answer_create(self, plural: str, space: str, item: Object) -> tuple[int, Object]:
        with self._changed:
            name = item["metadata"]["name"]
            if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name):
                return _status(422, "Invalid", f'"{name}" is invalid: metadata.name: must be a DNS-1035 label')
            if item["metadata"].get("namespace", space) != space:
                return _status(400, "BadRequest", "the namespace of the object does not match")
            if (plural, name) in self.objects:
                return _status(409, "AlreadyExists", f'{plural} "{name}" already exists')
            return 201, copy.deepcopy(self.create(plural, item))

    def answer_get(self, plural: str, name: str) -> tuple[int, Object]:
        with self._changed:
            item = self.objects.get((plural, name))
            return (200, copy.deepcopy(item)) if item else _status(404, "NotFound", f'{plural} "{name}" not found')

    def answer_list(self, plural: str, selector: str) -> tuple[int, Object]:
        with self._changed:
            kept = [o for (p, _), o in self.objects.items() if p == plural and _selects(selector, o)]
            return 200, {
                "kind": "List",
                "metadata": {"resourceVersion": str(self._version)},
                "items": copy.deepcopy(kept),
            }

    def answer_delete(self, plural: str, name: str, options: Object) -> tuple[int, Object]:
        with self._changed:
            item = self.objects.get((plural, name))
            if not item:
                return _status(404, "NotFound", f'{plural} "{name}" not found')
            wanted = (options.get("preconditions") or {}).get("uid")
            if wanted and wanted != item["metadata"]["uid"]:
                return _status(409, "Conflict", "Precondition failed: UID in precondition does not match")
            item["metadata"]["deletionTimestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            self._record("MODIFIED", plural, item)
            if self.finish_deletions:
                self.collect_garbage()
            return 200, copy.deepcopy(item)

    def collect_garbage(self) -> None:
        """End all foreground deletions: the pods of a deleted job go first, then itself."""
        with self._changed:
            doomed = [(p, n) for (p, n), o in self.objects.items() if "deletionTimestamp" in o["metadata"]]
            for plural, name in doomed:
                labels = self._template(self.objects[plural, name])["metadata"]["labels"]
                selector = ",".join(f"{key}={value}" for key, value in labels.items())
                for pod in self.answer_list("pods", selector)[1]["items"]:
                    self.delete("pods", pod["metadata"]["name"])
                self.delete(plural, name)

    def events(self, plural: str, selector: str, version: int, until: float) -> Iterator[Object]:
        """The watch stream: what changed after ``version``, until it is time to end."""
        if version < self._oldest:
            yield {"type": "ERROR", "object": _status(410, "Expired", f"too old resource version: {version}")[1]}
            return
        server = self._server
        while time.monotonic() < until and self._server is server and not self.cut_watches:
            with self._changed:
                new = [event for event in self._events if event[0] > version]
                if not new:
                    self._changed.wait(0.05)
                    continue
            for at, kind, body in new:
                version = at
                if body["plural"] == plural and _selects(selector, body["object"]):
                    yield {"type": kind, "object": body["object"]}


def _selects(selector: str, item: Object) -> bool:
    labels = item["metadata"].get("labels", {})
    return all(labels.get(key) == value for key, _, value in (s.partition("=") for s in selector.split(",") if s))


def _status(code: int, reason: str, message: str) -> tuple[int, Object]:
    return code, {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    }


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, *arguments: Any) -> None:
        self._connections: set[Any] = set()
        super().__init__(*arguments)

    def get_request(self) -> Any:
        connection, address = super().get_request()
        self._connections.add(connection)
        return connection, address

    def drop_connections(self) -> None:
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: Any) -> None:
        """Clients may leave a watch at any moment."""


def _handler_of(api: KubernetesApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Quiet."""

        def do_GET(self) -> None:
            self._serve()

        do_POST = do_DELETE = do_GET

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            address = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(address.query).items()}
            api.requests.append((self.command, self.path))
            api.tokens.append(self.headers.get("Authorization", ""))
            time.sleep(api.slow)
            for fault in api.faults:
                found = fault(self.command, self.path)
                if found:
                    return self._json(*_status(found[0], "Fault", found[1]))
            match = next((m for path in _PATHS if (m := path.fullmatch(address.path))), None)
            parts = match.groupdict() if match else {"plural": ""}
            plural, name = parts["plural"], parts.get("name")
            if plural not in api.kinds:
                return self._text(404, "404 page not found\n")  # as a real one answers for an unknown kind
            if self.command == "POST":
                return self._json(*api.answer_create(plural, parts["space"], body))
            if self.command == "DELETE":
                return self._json(*api.answer_delete(plural, name, body))
            if parts.get("log"):
                return self._log(name, query)
            if name:
                return self._json(*api.answer_get(plural, name))
            if query.get("watch") == "true":
                return self._watch(plural, query)
            return self._json(*api.answer_list(plural, query.get("labelSelector", "")))

        def _log(self, pod: str, query: dict[str, str]) -> None:
            if ("pods", pod) not in api.objects:
                return self._json(*_status(404, "NotFound", f'pods "{pod}" not found'))
            if pod not in api.logs:
                return self._json(*_status(400, "BadRequest", f'container in pod "{pod}" is waiting to start'))
            lines = api.logs[pod].splitlines(keepends=True)[-int(query["tailLines"]) :]
            return self._text(200, "".join(lines)[: int(query["limitBytes"])])

        def _watch(self, plural: str, query: dict[str, str]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            until = time.monotonic() + float(query.get("timeoutSeconds", 3600))
            version = int(query.get("resourceVersion", 0))
            for event in api.events(plural, query.get("labelSelector", ""), version, until):
                line = json.dumps(event).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.write(b"0\r\n\r\n")

        def _json(self, code: int, body: Object) -> None:
            self._send(code, "application/json", json.dumps(body).encode())

        def _text(self, code: int, text: str) -> None:
            self._send(code, "text/plain", text.encode())

        def _send(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
