from typing import Any

import pytest
import torch

from seq2seq.errors import UserError
from seq2seq.settings.rules import AUTO
from seq2seq.settings.trainer import TrainerConfig
from seq2seq.training import processes
from seq2seq.training.processes import agree, check_processes, choose_devices, uses_gpu

LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_NTASKS", "SEQ2SEQ_COLOUR")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in LAUNCHER:
        monkeypatch.setenv(variable, "")  # so that it is as before afterwards, whatever the test sets
        monkeypatch.delenv(variable)


def start(monkeypatch: pytest.MonkeyPatch, processes: int, *, by_slurm: bool = False) -> None:
    """Set the variables of torchrun's or SLURM's processes."""
    torchrun = {"RANK": "0", "WORLD_SIZE": f"{processes}", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    slurm = {"SLURM_NTASKS": f"{processes}", "SLURM_NTASKS_PER_NODE": f"{processes}", "SLURM_JOB_NAME": "train"}
    for name, value in (slurm | {"SLURM_JOB_ID": "7"} if by_slurm else torchrun).items():
        monkeypatch.setenv(name, value)


def test_processes_and_devices_have_to_be_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    check_processes(TrainerConfig(devices=4))  # Lightning starts the others
    start(monkeypatch, 2)
    check_processes(TrainerConfig(devices=2))
    check_processes(TrainerConfig(devices=1, num_nodes=2))
    with pytest.raises(UserError, match=r"2 processes were started, but trainer.devices=1 × trainer.num_nodes=1 is 1"):
        check_processes(TrainerConfig(devices=1))


def test_slurms_tasks_count_as_started(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, 3, by_slurm=True)
    check_processes(TrainerConfig(devices=3))
    with pytest.raises(UserError, match=r"3 processes were started, but trainer.devices=2"):
        check_processes(TrainerConfig(devices=2))


def test_a_sweep_starts_no_processes_of_its_own() -> None:
    check_processes(TrainerConfig(devices=1), is_sweep=True)
    with pytest.raises(UserError, match=r"a sweep cannot start 2 processes.*torchrun --nproc-per-node 2"):
        check_processes(TrainerConfig(devices=2), is_sweep=True)


def test_processes_that_lightning_starts_inherit_what_the_first_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    assert agree("colour", lambda: "blue") == "blue"
    assert agree("colour", lambda: "red") == "red"  # of the next run in this process
    monkeypatch.setattr(processes, "rank", lambda: 1)
    assert agree("colour", lambda: pytest.fail("the first decides")) == "red"
    monkeypatch.delenv("SEQ2SEQ_COLOUR")
    with pytest.raises(UserError, match="does not know the first one: start several nodes by torchrun or SLURM"):
        agree("colour", lambda: pytest.fail("the first decides"))


@pytest.mark.parametrize(
    ("gpus", "settings", "devices"),
    [
        (4, {"devices": "auto"}, 4),
        (0, {"devices": "auto"}, 1),
        (4, {"devices": "auto", "accelerator": "cpu"}, 1),
        (4, {"devices": 2}, 2),
        (0, {"devices": 2}, 2),  # processes of a CPU
    ],
)
def test_all_devices_are_taken_unless_a_number_is_named(
    monkeypatch: pytest.MonkeyPatch, gpus: int, settings: dict[str, Any], devices: int
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    config = TrainerConfig(**settings)
    choose_devices(config)
    assert config.devices == devices


def test_as_many_devices_are_taken_as_processes_were_started(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, 6)
    config = TrainerConfig(devices=AUTO, num_nodes=2)
    choose_devices(config)
    assert config.devices == 3


def test_apples_gpu_is_not_taken_which_the_log_says(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    config = TrainerConfig()
    choose_devices(config)
    assert caplog.messages == ["trainer=auto takes the CPU: training on Apple's GPU is not supported"]
    assert not uses_gpu(config)


def test_fewer_gpus_than_asked_for_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UserError, match=r"trainer.devices=4 but this machine has 2 GPUs: leave it out to take them a"):
        choose_devices(TrainerConfig(devices=4))
    with pytest.raises(UserError, match=r"trainer.devices=4 but this machine has 2 GPUs: set trainer.devices=2"):
        choose_devices(TrainerConfig(devices=4), is_resumed=True)  # else the saved number would come again
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UserError, match=r"trainer.accelerator=gpu but there is no CUDA device"):
        choose_devices(TrainerConfig(accelerator="gpu"))
