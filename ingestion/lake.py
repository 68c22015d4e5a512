"""One URI, one store: a directory or an S3 prefix behind the same few calls.

Keys are relative to the URI, use ``/`` and never leave its prefix. Credentials, endpoint and
region come from the usual ``AWS_*`` variables (``AWS_ENDPOINT_URL`` for any S3-compatible server).
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, InvalidPathError
from obstore.store import LocalStore, S3Store

from ingestion.names import store_words

if TYPE_CHECKING:
    from zarr.storage import ObjectStore


T = TypeVar("T")
_PAUSES = (0.1, 0.4, 1.6)  # seconds before another try
_AGAIN_SECONDS = 60.0


class LakeError(Exception):
    """The lake URI or a key is unusable; the message says what was found and expected."""


class NoFolderError(LakeError, FileNotFoundError):
    """There is nothing to read from."""


@dataclass(frozen=True)
class Entry:
    """One object on the lake: its key, size in bytes, ETag and age."""

    key: str
    size: int
    etag: str | None
    modified: float  # seconds since the epoch


class Lake:
    """Objects under one URI (``file:///…``, a plain path, or ``s3://bucket/prefix``).

    A folder that is not there is made; with ``make=False``, for those who only read, it is refused.
    """

    def __init__(self, uri: str, *, make: bool = True) -> None:
        scheme, _, rest = uri.rpartition("://")
        if not rest.strip():  # such as a variable that is not set; never the folder one happens to be in
            raise LakeError(f"lake URI {uri!r} names nothing; expected a folder, file:///… or s3://BUCKET/PREFIX")
        if scheme == "s3":
            bucket, _, prefix = rest.partition("/")
            prefix = prefix.strip("/")
            if not bucket:
                raise LakeError(f"lake URI {uri!r} names no bucket; expected s3://BUCKET/PREFIX")
            self.uri = f"s3://{bucket}/{prefix}".rstrip("/")
            self.store: S3Store | LocalStore = _s3_store(self.uri)
        elif scheme in ("", "file"):
            root = Path(unquote(rest) if scheme else uri).absolute()
            self.uri = root.as_uri()
            if not make and not root.is_dir():
                raise NoFolderError(f"there is no folder {str(root)!r}; expected one to read from")
            try:
                self.store = LocalStore(root, mkdir=make)
            except OSError as error:
                raise LakeError(
                    f"lake folder {str(root)!r} cannot be used: {error}; give one that can be written"
                ) from error
        else:
            raise LakeError(f"lake URI {uri!r} has scheme {scheme!r}; expected s3:// or file://")

    def check(self, key: str | None = None) -> None:
        """Ask the server of an ``s3://`` URI once, for ``key`` or for a listing.

        Raises ``LakeError`` within seconds when it does not answer or refuses; whether ``key`` exists is no matter.
        """
        if isinstance(self.store, LocalStore):
            return
        store = _s3_store(self.uri, timeout="10s", retries=1)
        try:
            if key is None:
                obstore.list_with_delimiter(store)
            else:
                obstore.head(store, _checked(key))
        except (InvalidPathError, FileNotFoundError):  # an answer
            return
        except BaseError as error:
            raise LakeError(
                f"{self.uri} at {_endpoint() or 'AWS'} cannot be read: {store_words(error)}; "
                "check the bucket, AWS_ENDPOINT_URL, AWS_REGION and the credentials (AWS_ACCESS_KEY_ID, …)"
            ) from error

    @property
    def remote(self) -> bool:
        """Whether a server holds the objects."""
        return isinstance(self.store, S3Store)

    def uri_of(self, key: str) -> str:
        """The absolute URI of ``key`` (percent-encoded in a ``file://`` URI)."""
        key = _checked(key)
        return f"{self.uri}/{quote(key) if isinstance(self.store, LocalStore) else key}"

    def read(self, key: str) -> bytes:
        """Bytes of ``key``. Raises ``FileNotFoundError``."""
        return self._persistently(lambda: bytes(obstore.get(self.store, _checked(key)).bytes()))

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """``length`` bytes of ``key`` from ``start``. Raises ``FileNotFoundError``."""
        return bytes(self.buffer(key, start, length))

    def buffer(self, key: str, start: int, length: int) -> memoryview:
        """As ``read_range``, without a copy of what may be large."""
        return self._persistently(
            lambda: memoryview(obstore.get_range(self.store, _checked(key), start=start, length=length))
        )

    def read_json(self, key: str) -> Any:
        """Parsed JSON of ``key``. Raises ``FileNotFoundError``."""
        return json.loads(self.read(key))

    def head(self, key: str) -> Entry:
        """Size, ETag and age of ``key``. Raises ``FileNotFoundError``."""
        return _entry(self._persistently(lambda: obstore.head(self.store, _checked(key))))

    def exists(self, key: str) -> bool:
        """Whether ``key`` holds an object."""
        try:
            self.head(key)
        except FileNotFoundError:
            return False
        return True

    def write(self, key: str, data: bytes | Path | Iterable[bytes | memoryview]) -> None:
        """Put ``data`` (bytes, or a local file or buffers, streamed in parts) at ``key``, atomically."""
        obstore.put(self.store, _checked(key), data)

    def create(self, key: str, data: bytes) -> bool:
        """Put ``data`` at ``key`` only if nothing is there; say whether ``data`` lies there now.

        A server may carry out the PUT and its answer be lost: the next try then finds the key taken, by this call.
        """
        try:
            self._persistently(lambda: obstore.put(self.store, _checked(key), data, mode="create"))
        except AlreadyExistsError:
            return self.read(key) == data
        return True

    def objects(self, prefix: str = "", *, unusable: Callable[[str], None] | None = None) -> Iterator[Entry]:
        """All objects below the folder ``prefix``, in no particular order.

        Names that can be no key (control characters, no UTF-8, empty parts) are passed over and told to ``unusable``;
        without it they raise ``LakeError``.
        """
        seen: set[str] = set()
        try:
            yield from self._listed(prefix.strip("/") or None, seen)
        except InvalidPathError as error:  # which ends the whole listing
            if unusable is None:
                raise self._odd_name(prefix, error) from error
            for name in sorted(self._names(prefix) - seen):
                try:
                    yield self.head(name)
                except LakeError:
                    unusable(name)
                except FileNotFoundError:  # deleted meanwhile
                    continue

    def _odd_name(self, prefix: str, error: InvalidPathError) -> LakeError:
        said = store_words(error)
        return LakeError(f"a name below {self.uri}/{prefix} can be no key: {said!a}; rename or remove that file")

    def _names(self, prefix: str) -> set[str]:
        """All names below ``prefix`` as the file system or the server has them, files only."""
        if isinstance(self.store, LocalStore):
            root = Path(unquote(self.uri.removeprefix("file://")))
            return {
                os.path.relpath(f"{folder}/{name}", root)
                for folder, _, names in os.walk(root / prefix, followlinks=True)
                for name in names
            }
        import boto3
        from botocore.config import Config

        bucket, _, above = self.uri.removeprefix("s3://").partition("/")
        start = f"{above}/" if above else ""
        config = Config(s3={"addressing_style": "path"} if _endpoint() else None)
        pages = (
            boto3.client("s3", config=config)
            .get_paginator("list_objects_v2")
            .paginate(Bucket=bucket, Prefix=f"{start}{prefix.strip('/')}/")
        )
        keys = (item["Key"] for page in pages for item in page.get("Contents", []))
        return {key.removeprefix(start) for key in keys if not key.endswith("/")}

    def folders(self, prefix: str = "") -> list[str]:
        """Names of the folders directly below the folder ``prefix``, sorted."""
        try:
            found = self._persistently(
                lambda: obstore.list_with_delimiter(self.store, prefix=prefix.strip("/") or None)
            )
        except InvalidPathError as error:
            raise self._odd_name(prefix, error) from error
        return sorted(PurePosixPath(p).name for p in found["common_prefixes"])

    def delete(self, keys: list[str]) -> None:
        """Delete ``keys``; a key that is already gone is fine."""
        for key in keys:
            try:
                obstore.delete(self.store, _checked(key))
            except FileNotFoundError:
                continue

    def _listed(self, prefix: str | None, seen: set[str]) -> Iterator[Entry]:
        """All objects, each added to ``seen``; a listing that breaks off is begun again and goes on where it was."""
        for pause in (*_PAUSES, None):
            try:
                for batch in obstore.list(self.store, prefix=prefix):
                    for meta in batch:
                        if meta["path"] not in seen:
                            seen.add(meta["path"])
                            yield _entry(meta)
                return
            except GenericError:
                if pause is None or not isinstance(self.store, S3Store):
                    raise
                time.sleep(pause)

    def _persistently(self, call: Callable[[], T]) -> T:
        """``call`` again when its answer broke off, a few times and for a minute.

        The client itself tries again for long, save in two places: the body of an error, and a conditional PUT.
        """
        deadline = time.monotonic() + _AGAIN_SECONDS
        for pause in _PAUSES if isinstance(self.store, S3Store) else ():
            try:
                return call()
            except GenericError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(pause)
        return call()

    def zarr_store(self, key: str, *, read_only: bool = False) -> ObjectStore[Any]:
        """A zarr store rooted at ``key``."""
        from zarr.storage import ObjectStore  # slow to import, and most callers have no volume to open

        return ObjectStore(Lake(self.uri_of(key)).store, read_only=read_only)


def split_uri(uri: str) -> tuple[Lake, str]:
    """The folder of ``uri``, which has to be there, as a lake to read from, and the object's key in it."""
    folder, _, key = uri.rstrip("/").rpartition("/")
    if uri.startswith("file://"):
        key = unquote(key)
    if not key or folder.endswith(":/"):
        raise LakeError(f"{uri!r} names no object; expected a path, file:// or s3:// URI of one file")
    if folder in ("", "file://"):
        folder += "/" if uri.startswith(("/", "file:")) else "."
    return Lake(folder, make=False), key


def _s3_store(uri: str, timeout: str = "120s", retries: int = 100) -> S3Store:
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    endpoint = _endpoint()
    if endpoint and not re.match(r"https?://[^/]", endpoint):
        raise LakeError(f"AWS_ENDPOINT_URL is {endpoint!r}; expected http://HOST:PORT or https://HOST")
    return S3Store(
        bucket,
        prefix=prefix or None,
        client_options={"allow_http": True, "timeout": timeout, "connect_timeout": "4s"},
        # refused connections use up ten retries in two seconds; what ends the waiting is the three minutes
        retry_config={"max_retries": retries, "retry_timeout": timedelta(minutes=3)},
        config={"endpoint": endpoint} if endpoint else {},
    )


def _endpoint() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


def _checked(key: str) -> str:
    if any(ord(c) < 32 or ord(c) == 127 or "\ud800" <= c <= "\udfff" for c in key):
        raise LakeError(f"key {key!a} holds a control character or is not UTF-8; rename the file")
    if not key or key.startswith("/") or any(part in ("", ".", "..") for part in key.split("/")):
        raise LakeError(f"key {key!r} would leave its prefix; expected a relative path of plain names")
    return key


def _entry(meta: Any) -> Entry:
    return Entry(meta["path"], meta["size"], meta["e_tag"], meta["last_modified"].timestamp())
