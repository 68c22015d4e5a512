"""Plain data parallelism: every process holds everything, gradients are summed by all-reduce during backward."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

from seismic_model.config import RunConfig
from seismic_model.parallel.mesh import Mesh
from seismic_model.parallel.strategies.base import DTYPES
from seismic_model.parallel.strategies.local import LocalAdamW

BUCKET_BYTES = 25 * 2**20  # long enough for full speed, short enough to begin early


@dataclass
class _Bucket:
    """A run of the flat gradient that travels in one all-reduce."""

    gradient: Tensor
    members: int
    arrived: int = 0


@dataclass
class _Sender:
    """Sends buckets in their order, the same in every process, each once its gradients are complete."""

    buckets: list[_Bucket]
    works: list[dist.Work] = field(default_factory=list)

    def send_complete(self) -> None:
        while len(self.works) < len(self.buckets) and (
            self.buckets[len(self.works)].arrived == self.buckets[len(self.works)].members
        ):
            self._send()

    def finish(self) -> None:
        """Send what is left, of parameters that had no gradient here, and wait for all."""
        while len(self.works) < len(self.buckets):
            self._send()
        for work in self.works:
            work.wait()
        self.works.clear()
        for bucket in self.buckets:
            bucket.arrived = 0

    def _send(self) -> None:
        work = dist.all_reduce(self.buckets[len(self.works)].gradient, async_op=True)
        assert work is not None
        self.works.append(work)


class AllReduce(LocalAdamW):
    """Gradients are added up in float32 (float64) and sent while those of earlier layers are computed."""

    def __init__(self, model: nn.Module, config: RunConfig, mesh: Mesh) -> None:
        super().__init__(model, config, mesh, replica=1)
        self._parameters = dict(model.named_parameters())
        accurate = torch.promote_types(DTYPES[config.precision], torch.float32)
        # the model's own tensors, or accurate copies of them in a bfloat16 run
        self._masters = {name: p.detach().to(accurate) for name, p in self._parameters.items()}
        self._train(self._masters, dict.fromkeys(self._masters, 0))
        self._gradient = torch.zeros(sum(p.numel() for p in self._masters.values()), dtype=accurate, device=mesh.device)
        self._sender = _Sender(self._watch_gradients())
        self._last = False

    def _watch_gradients(self) -> list[_Bucket]:
        """Give each parameter its place in the flat gradient, in about the order in which backward finds them."""
        buckets: list[_Bucket] = []
        start = end = members = 0
        for name, parameter in reversed(self._parameters.items()):
            master = self._masters[name]
            place = self._gradient[end : end + master.numel()].view_as(master)
            master.grad = place
            if parameter.dtype == master.dtype:
                parameter.grad = place  # backward adds to it
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                partial(self._arrived, place, len(buckets))
            )
            end, members = end + master.numel(), members + 1
            if (end - start) * self._gradient.element_size() >= BUCKET_BYTES or end == len(self._gradient):
                buckets.append(_Bucket(self._gradient[start:end], members))
                start, members = end, 0
        return buckets

    def _arrived(self, place: Tensor, bucket: int, parameter: Tensor) -> None:
        if parameter.dtype != place.dtype:
            assert parameter.grad is not None
            place += parameter.grad
            parameter.grad = None
        if self._last:
            self._sender.buckets[bucket].arrived += 1
            self._sender.send_complete()

    def _backward(self, loss: Tensor, last: bool) -> None:
        self._last = last
        loss.backward()  # type: ignore[no-untyped-call]

    def _reduce(self) -> list[Tensor]:
        with self.mesh.waiting:
            self._sender.finish()
        self._gradient /= self.mesh.world
        return [bucket.gradient for bucket in self._sender.buckets]  # the norm takes a float64 copy of each

    def _drop_gradients(self) -> None:
        self._gradient.zero_()

    @torch.no_grad()
    def _publish(self) -> None:
        for name, parameter in self._parameters.items():
            if parameter.dtype != self._masters[name].dtype:
                parameter.copy_(self._masters[name])
