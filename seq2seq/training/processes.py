"""The devices and processes of a run, and decisions that they share before Lightning connects them."""

import atexit
import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_only

from seq2seq.errors import UserError
from seq2seq.settings.checks import IntOrAuto
from seq2seq.settings.rules import AUTO
from seq2seq.settings.training import TrainerConfig
from seq2seq.storage.cache import identity_of

log = logging.getLogger(__name__)
PATIENCE = timedelta(minutes=10)  # to wait for another process
_PREPARATION = timedelta(days=7)  # to wait for the first process while it prepares text


class Launch(NamedTuple):
    """Processes that were started together."""

    by: str
    processes: int
    nodes: int  # each with as many processes; 0: a script did not say so

    def count_nodes(self, devices: IntOrAuto) -> int:
        """Return the number of nodes, given trainer.devices."""
        return self.nodes or (1 if devices == AUTO else max(1, self.processes // devices))


def find_launch() -> Launch | None:
    """Return the processes that torchrun, SLURM or a script started for a run; None: Lightning starts the others."""
    known, by = os.environ, "torchrun" if TorchElasticEnvironment.detect() else "a script"
    if by != "torchrun" and SLURMEnvironment.detect():
        by, processes, nodes = "SLURM", int(known["SLURM_NTASKS"]), int(known.get("SLURM_NNODES", 1))
        on_this = known.get("SLURM_NTASKS_PER_NODE")
    elif {"RANK", "WORLD_SIZE"} <= known.keys():
        processes, nodes = int(known["WORLD_SIZE"]), int(known.get("GROUP_WORLD_SIZE", 0))
        on_this = known.get("LOCAL_WORLD_SIZE")
        for name in {"MASTER_ADDR", "MASTER_PORT"} - known.keys():
            raise UserError(f"RANK and WORLD_SIZE are set, but not {name}: set it, or start the processes by torchrun")
    else:
        return None
    if processes > 1 and nodes and on_this != f"{processes / nodes:g}":
        raise UserError(
            f"{by} started {processes} processes on {nodes} nodes, {on_this or 'an unknown number'} on this one: start "
            "as many on each, by srun --ntasks-per-node=N or torchrun --nproc-per-node N"
        )
    if by == "SLURM":
        slurm = SLURMEnvironment(auto_requeue=False)
        known["MASTER_ADDR"], known["MASTER_PORT"] = slurm.main_address, str(slurm.main_port)
    return Launch(by, processes, nodes)


def rank() -> int:
    """Return this process's number within the run; process 0 decides and writes."""
    return rank_zero_only.rank or 0  # pyright: ignore[reportFunctionMemberAccess]


def uses_gpu(config: TrainerConfig) -> bool:
    """Return whether training runs on a GPU; `auto` takes one that PyTorch's CUDA or ROCm build can use."""
    return config.accelerator != "cpu" and torch.cuda.is_available()


def choose_devices(config: TrainerConfig) -> None:
    """Replace trainer.num_nodes=auto and trainer.devices=auto by numbers: those of started processes, or all GPUs."""
    gpus = 0 if config.accelerator == "cpu" else torch.cuda.device_count()
    if config.accelerator == "gpu" and gpus == 0:
        raise UserError("trainer.accelerator=gpu but there is no CUDA device: use trainer=cpu or a CUDA PyTorch")
    if config.replay is True and not gpus:
        raise UserError("trainer.replay=true records updates on a GPU, and there is no CUDA device: set auto or false")
    if config.accelerator == "auto" and not gpus and torch.backends.mps.is_available():
        log.info("trainer=auto takes the CPU: training on Apple's GPU is not supported")
    launch = find_launch()
    if config.num_nodes == AUTO:
        config.num_nodes = launch.count_nodes(config.devices) if launch else 1
    if config.devices == AUTO:
        config.devices = max(1, launch.processes // config.num_nodes if launch else gpus)
    if gpus and config.devices > gpus:
        started = f"start {gpus} processes on each machine, or let each process see all GPUs of its machine"
        advice = started if launch else f"set trainer.devices={gpus}"
        raise UserError(f"trainer.devices={config.devices} but this machine has {gpus} GPUs: {advice}")


def choose_precision(config: TrainerConfig) -> str:
    """Return `trainer.precision`; for `auto`, `bf16-mixed` if the device multiplies bf16 matrices fast, else `32-true`.

    Fast devices are GPUs of compute capability 8.0 (Ampere) or more, Intel's CPUs with AMX, AMD's with AVX-512's bf16,
    and Arm's with bf16. A Xeon without AMX was slower in bf16 than in float32 (docs/performance.md). CPUs without bf16
    emulate it.
    """
    if config.precision != AUTO:
        return config.precision
    if uses_gpu(config):
        has_bf16 = torch.cuda.get_device_capability() >= (8, 0)
    else:
        has_bf16 = config.accelerator == "gpu" or _cpu_has_quick_bf16()  # a missing GPU: `choose_devices`
    return "bf16-mixed" if has_bf16 else "32-true"


def _cpu_has_quick_bf16() -> bool:
    capabilities = torch.cpu.get_capabilities()
    is_intel = str(capabilities.get("cpu_name", "")).startswith("Intel")
    return any(capabilities.get(name, False) for name in ("amx_bf16", "bf16", *(() if is_intel else ("avx512_bf16",))))


def check_processes(config: TrainerConfig, is_sweep: bool = False) -> None:
    """Refuse started processes that differ from the devices in the settings, and a sweep that would start some."""
    launch, devices, nodes = find_launch(), config.devices, config.num_nodes
    wanted = devices * nodes
    if launch and (launch.processes != wanted or launch.nodes not in (0, nodes)):
        started = launch.count_nodes(devices)
        raise UserError(
            f"{launch.processes} processes were started, but trainer.devices={devices} × trainer.num_nodes={nodes} is "
            f"{wanted}: set trainer.devices={launch.processes // started} trainer.num_nodes={started}, as {launch.by} "
            f"started them, or start {devices} on each of {nodes} nodes"
        )
    if not launch and nodes > 1:
        raise UserError(
            f"trainer.num_nodes={nodes}, but neither torchrun nor srun started this process: run torchrun --nnodes "
            f"{nodes} --nproc-per-node {devices} --rdzv-backend c10d --rdzv-endpoint HOST:29400 train.py … on each node"
        )
    if is_sweep and wanted > 1 and not launch:
        raise UserError(
            f"a sweep cannot start {wanted} processes for each of its runs: start them all at once, as "
            f"torchrun --nproc-per-node {config.devices} train.py --multirun …, or sweep with trainer.devices=1"
        )


def share_folder(key: str, make: Callable[[], Path]) -> Path:
    """Return the folder of the cache that the first process makes or checks, for all processes that see the folder.

    A process that does not see it, such as one on a machine with a cache of its own, makes or checks its own folder.
    """

    def decide() -> str:
        folder = make()
        return json.dumps([str(folder), identity_of(folder)])

    folder, identity = json.loads(broadcast_decision(key, decide))
    return Path(folder) if rank() == 0 or (identity and identity == identity_of(Path(folder))) else make()


def broadcast_decision(key: str, decide: Callable[[], str]) -> str:
    """Return the first process's decision in every process.

    Processes that Lightning starts read the decision from their environment. Processes that torchrun or SLURM started
    wait for the first one's broadcast as long as the first one lives.
    """
    launch, variable = find_launch(), f"SEQ2SEQ_{key.upper()}"
    if launch and launch.processes > 1:
        return _broadcast(decide, launch.processes)
    if rank() == 0:
        os.environ[variable] = decide()
    elif variable not in os.environ:
        raise UserError("this process does not know the first one: start several nodes by torchrun or SLURM")
    return os.environ[variable]


def _broadcast(decide: Callable[[], str], processes: int) -> str:
    """Connect the processes as a group, in which they will train, and broadcast the first one's decision."""
    with _naming_lost_processes(processes):
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group(_backend(), rank=rank(), world_size=processes, timeout=PATIENCE)
    decision, failure = [""], None  # no decision: the first process has failed
    if rank() == 0:
        try:
            decision = [decide()]
        except Exception as error:  # raised below, when the others know of it
            failure = error
    patient = torch.distributed.BroadcastOptions()
    patient.timeout = _PREPARATION
    with contextlib.suppress(RuntimeError) if failure else _naming_lost_processes(processes):
        world: Any = torch.distributed.group.WORLD
        world.broadcast([torch.zeros(1)], patient).wait()  # until the first has decided
        torch.distributed.broadcast_object_list(decision, device=torch.device("cpu"))
    if failure or not decision[0]:
        raise failure or UserError("the first process could not begin; its own error says why")
    return decision[0]


@contextlib.contextmanager
def _naming_lost_processes(processes: int) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise UserError(
            f"the {processes} processes are not connected: one has ended, or did not start within {PATIENCE} "
            f"and find {os.environ['MASTER_ADDR']}, port {os.environ['MASTER_PORT']}"
        ) from error


class SummedGradients(DDPStrategy):
    """Data-parallel training without DDP, which cannot be recorded: `TranslationModule` sums the gradients."""

    def configure_ddp(self) -> None:
        """Give all processes the first one's weights, as DDP does."""
        assert self.model is not None
        for tensor in self.model.state_dict().values():
            torch.distributed.broadcast(tensor, 0)


def make_strategy(config: TrainerConfig, *, is_recorded: bool = False) -> DDPStrategy | str:
    """Return how Lightning distributes training: over all devices, in their group if there is one; auto for one."""
    if config.devices * config.num_nodes == 1:
        return "auto"
    atexit.register(_disconnect)
    return (SummedGradients if is_recorded else DDPStrategy)(process_group_backend=_backend(), timeout=PATIENCE)


def _backend() -> str:
    """Return how processes exchange values: those of the host never wait for a GPU."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def _disconnect() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
