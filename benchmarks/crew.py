"""Processes of one gloo group that live on between tasks, so that their start is paid once.

    with Crew(4) as crew:
        answers = crew.ask(task, argument)  # task(argument) in all four processes, which may talk by torch.distributed

Tasks are functions of a module that the processes can import.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist

Answer = TypeVar("Answer")


class CrewError(Exception):
    """A process failed, ended or was too slow; the crew is gone."""


class Crew:
    """``size`` single-threaded processes that have joined; leave the block to end them."""

    def __init__(self, size: int, timeout: float = 120) -> None:
        """``timeout`` in seconds, for the start and for each task."""
        self.size, self._timeout = size, timeout

    def __enter__(self) -> Crew:
        context = multiprocessing.get_context("forkserver")  # forks from a process without threads
        context.set_forkserver_preload(["torch.distributed"])
        self._folder = tempfile.TemporaryDirectory(prefix="crew-")
        pipes = [context.Pipe() for _ in range(self.size)]
        self._pipes = [ours for ours, _ in pipes]
        self._processes = [
            context.Process(target=_work, args=(theirs, rank, self.size, self._folder.name), daemon=True)
            for rank, (_, theirs) in enumerate(pipes)
        ]
        for process, (_, theirs) in zip(self._processes, pipes, strict=True):
            process.start()
            theirs.close()
        self._collect(range(self.size))
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.close()  # the processes end when they find this
        for process in self._processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()
        self._folder.cleanup()

    def ask(self, task: Callable[..., Answer], *arguments: object, ranks: range | None = None) -> list[Answer]:
        """What ``task(*arguments)`` gives in each process of ``ranks`` (all), in their order. Raises ``CrewError``."""
        ranks = ranks or range(self.size)
        for rank in ranks:
            self._pipes[rank].send((task, arguments))
        return self._collect(ranks)

    def _collect(self, ranks: range) -> list[Any]:
        answers: dict[Connection, Any] = {}
        missing = [self._pipes[rank] for rank in ranks]
        while missing:
            ready = wait(missing, self._timeout)
            if not ready:
                late = [rank for rank in ranks if self._pipes[rank] in missing]
                self._end(f"ranks {late} gave no answer within {self._timeout:g} s")
            for pipe in ready:
                assert isinstance(pipe, Connection)
                missing.remove(pipe)
                try:
                    answers[pipe], error = pipe.recv()
                except EOFError:
                    error = "it ended without a word"
                if error:
                    self._end(f"rank {self._pipes.index(pipe)}: {error}")
        return [answers[self._pipes[rank]] for rank in ranks]

    def _end(self, reason: str) -> None:
        for process in self._processes:
            process.kill()
        raise CrewError(reason)


def _work(pipe: Connection, rank: int, size: int, folder: str) -> None:
    import torch

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=(Path(folder) / "store").as_uri(), rank=rank, world_size=size)
    pipe.send((None, ""))
    while True:
        try:
            task, arguments = pipe.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            pipe.send((task(*arguments), ""))
        except Exception:
            pipe.send((None, traceback.format_exc()))
