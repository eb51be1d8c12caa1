"""The forward and backward pass of an update as one CUDA graph for each shape of batch: one launch, not a thousand.

The host needs longer to send an update's operations to a GPU one by one than the GPU to compute them. A CUDA graph is
the recorded sequence of all operations, sent at once. It reads and writes the same memory in every run: a batch is
copied to the recorded batch's memory, and weights and gradients stay where they are. Clipping, the optimizer and
callbacks are not recorded.
"""

# pyright: reportPrivateImportUsage=false
# (torch does not export its _foreach functions, which its own optimizers use)

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq.data.batching import LADDER_TOKENS, Batch
from seq2seq.errors import is_out_of_memory, shorten
from seq2seq.settings.config import Config
from seq2seq.settings.rules import AUTO
from seq2seq.training.processes import uses_gpu

MOST_SHAPES = 64  # more shapes are computed without a recording: each recording takes time and memory
TOLERANCE = 0.01  # share by which a replayed gradient may differ: other kernels round bf16 differently

log = logging.getLogger(__name__)
Results = tuple[Tensor, ...]
Computation = Callable[[], Results]
Recorder = Callable[[Computation], Computation]


def recording_obstacle(config: Config) -> str | None:
    """Return why the updates of a run are not recorded; None: they are. auto: where batches have few shapes."""
    if not uses_gpu(config.trainer):
        return "no GPU"
    if config.trainer.replay == AUTO and config.training.max_tokens < LADDER_TOKENS:
        return f"training.max_tokens={config.training.max_tokens}"
    return config.replay_obstacle()


class CudaRecorder:
    """Records computations as CUDA graphs that share their memory."""

    def __init__(self) -> None:
        self._pool: Any = None

    def __call__(self, compute: Computation) -> Computation:
        """Record a computation without running it; return what runs it, into the same results each time."""
        if self._pool is None:  # PyTorch never frees the memory of a recording that fails
            torch.cuda.empty_cache()
            if torch.cuda.mem_get_info()[0] < torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated():
                raise MemoryError("too little free memory")
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            # if recording fails, only the outer block returns to this stream; the loader's thread pins memory meanwhile
            with torch.cuda.stream(stream), torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                results = compute()
        except Exception:
            generator = torch.cuda.default_generators[stream.device_index]
            generator.graphsafe_set_state(generator.clone_state())  # its state would wait for the recording's end
            raise
        self._pool = graph.pool()

        def run() -> Results:
            graph.replay()
            return results

        return run


class Replay:
    """Computes losses and adds their gradients, by a recording if the batch's shape has one.

    Gradients stay at the same place in `gradients`; `clear` sets them to zero. The random numbers are those that follow
    the last seed, with and without a recording.

    The first recording is compared with the plain computation. If it fails or differs, nothing is recorded any more.
    """

    def __init__(
        self, losses: Callable[[Batch], Results], parameters: Sequence[nn.Parameter], record: Recorder
    ) -> None:
        """Take a function that returns the loss and further results, the trained parameters, and a recorder."""
        self.losses, self.parameters, self.record = losses, parameters, record
        self.gradients = parameters[0].new_zeros(sum(parameter.numel() for parameter in parameters))
        self.recordings: dict[tuple[torch.Size, ...], tuple[Batch, Computation]] = {}
        self._addresses = [parameter.data_ptr() for parameter in parameters]
        self.is_recording = True

    def clear(self) -> None:
        """Set all gradients to zero; Lightning removes them before a validation. Drop recordings of other weights."""
        addresses = [parameter.data_ptr() for parameter in self.parameters]
        if addresses != self._addresses:
            self._addresses = addresses
            self._drop_recordings()
        self.gradients.zero_()
        for parameter, gradient in zip(self.parameters, self._split(self.gradients), strict=True):
            parameter.grad = gradient

    def __call__(self, batch: Batch) -> Results:
        """Add the batch's gradients; return its loss and the further results."""
        shape = tuple(side.shape for side in batch)
        if shape in self.recordings:
            recorded, run = self.recordings[shape]
            for buffer, side in zip(recorded, batch, strict=True):
                buffer.copy_(side, non_blocking=True)
            return tuple(result.clone() for result in run())
        is_first = self.is_recording and not self.recordings  # all gradients are zero
        if is_first:
            torch.manual_seed(torch.initial_seed())  # `_compare` draws the same numbers
        results = self._plainly(batch)  # first: a recording may not set up libraries, or tables that later code reads
        if not self.is_recording or len(self.recordings) == MOST_SHAPES:
            return results
        recorded = Batch(*(side.clone() for side in batch))
        try:
            run = self.record(lambda: self._add(recorded))
            if is_first:
                self._compare(run, results)
            self.recordings[shape] = recorded, run
        except Exception as error:  # whatever it is, training can go on without recordings
            self._give_up(error)
        return results

    def _plainly(self, batch: Batch) -> Results:
        """Add the batch's gradients without a recording; if memory runs out, free the recordings' memory first."""
        try:
            return self._add(batch)
        except Exception as error:
            if not self.recordings or not is_out_of_memory(error):
                raise
            self._give_up(error)
        torch.manual_seed(torch.initial_seed())  # nothing was added, but random numbers were drawn
        return self._add(batch)

    def _give_up(self, error: Exception) -> None:
        self.is_recording = False
        self._drop_recordings()
        log.warning("updates are not recorded, which is slower (%s)", shorten(error))

    def _drop_recordings(self) -> None:
        if self.gradients.is_cuda:
            torch.cuda.synchronize()  # a replay may not have ended
        self.recordings.clear()

    def _compare(self, run: Computation, results: Results) -> None:
        """Replay with the seed of the plain computation, and compare; keep the plain computation's gradients."""
        plain = self.gradients.clone()
        self.gradients.zero_()
        torch.manual_seed(torch.initial_seed())
        try:
            pairs = zip(run(), results, strict=True)
            is_close = torch.stack([torch.isclose(new.float(), old.float(), rtol=TOLERANCE) for new, old in pairs])
            lengths = torch.stack(torch._foreach_norm(self._split(plain)))
            distances = torch.stack(torch._foreach_norm(self._split(self.gradients - plain)))
            # the sum, because a gradient that is zero in theory consists of rounding errors
            is_near = distances <= TOLERANCE * (lengths + lengths.norm() / 10)
        finally:
            self.gradients.copy_(plain)
        if not bool(is_close.all() & is_near.all()):
            raise ValueError("a replayed update differs from the plain one")

    def _split(self, flat: Tensor) -> list[Tensor]:
        parts = flat.split([parameter.numel() for parameter in self.parameters])
        return [part.view_as(parameter) for part, parameter in zip(parts, self.parameters, strict=True)]

    def _add(self, batch: Batch) -> Results:
        device = batch.src.device.type
        dtype, is_mixed = torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        # a recording would reuse autocast's cached casts after the weights have changed
        with torch.autocast(device, dtype, enabled=is_mixed, cache_enabled=False):
            loss, *others = self.losses(batch)
        with torch.autocast(device, enabled=False):
            new = torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)
            torch._foreach_add_(self._split(self.gradients), new)
        return loss.detach(), *others
