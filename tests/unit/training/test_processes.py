from unittest.mock import Mock

import pytest
import torch
from saved_runs import make_run

from seq2seq.apps import train
from seq2seq.errors import UserError
from seq2seq.settings.compose import compose_by_hydra
from seq2seq.settings.config import Config
from seq2seq.settings.rules import AUTO
from seq2seq.settings.training import TrainerConfig
from seq2seq.training import processes
from seq2seq.training.processes import broadcast_decision, check_processes, choose_devices, uses_gpu
from tests.refusing import refuses

LAUNCHER = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    "TORCHELASTIC_RUN_ID", "SLURM_NTASKS", "SLURM_NNODES", "SLURM_NTASKS_PER_NODE", "SEQ2SEQ_COLOUR",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in LAUNCHER:
        monkeypatch.setenv(variable, "")  # so that it is as before afterwards, whatever the test sets
        monkeypatch.delenv(variable)


def start(monkeypatch: pytest.MonkeyPatch, by: str, nodes: int, on_each: int) -> None:
    """Set the variables of torchrun's or SLURM's processes, or of a script's, which does not tell the nodes."""
    total = nodes * on_each
    script = {"RANK": 0, "WORLD_SIZE": total, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1}
    torchrun = script | {"TORCHELASTIC_RUN_ID": "7", "LOCAL_WORLD_SIZE": on_each, "GROUP_WORLD_SIZE": nodes}
    slurm = {"SLURM_NTASKS": total, "SLURM_NTASKS_PER_NODE": on_each, "SLURM_NNODES": nodes}
    slurm |= {"SLURM_JOB_NAME": "train", "SLURM_JOB_ID": 7}
    for name, value in {"torchrun": torchrun, "SLURM": slurm, "a script": script}[by].items():
        monkeypatch.setenv(name, str(value))


@pytest.mark.parametrize("by", ["torchrun", "SLURM", "a script"])
@pytest.mark.parametrize(
    ("nodes", "on_each", "settings", "expected"),
    [
        (1, 1, {}, (1, 1)),
        (1, 1, {"devices": AUTO}, (1, 1)),
        (1, 4, {"devices": AUTO}, (4, 1)),
        (2, 3, {"devices": 3}, (3, 2)),
        (2, 3, {"devices": AUTO, "num_nodes": 2}, (3, 2)),
        (1, 1, {"devices": 2}, "1 processes were started, but trainer.devices=2 × trainer.num_nodes=1 is 2: "
         "set trainer.devices=1 trainer.num_nodes=1"),
        (1, 2, {"devices": 1, "num_nodes": 1}, r"2 processes were started, but .* is 1: set trainer.devices="),
        (2, 2, {"devices": 2, "num_nodes": 1}, "devices=2 trainer.num_nodes=2, as .* started them, or start 2 on"),
        (2, 2, {"devices": 2, "num_nodes": 3}, "trainer.num_nodes=3 is 6: set trainer.devices=2 trainer.num_nodes=2"),
    ],
)  # fmt: skip
def test_the_processes_that_were_started_decide_or_are_named(monkeypatch, by, nodes, on_each, settings, expected):
    start(monkeypatch, by, nodes, on_each)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    config = TrainerConfig(**{"num_nodes": AUTO} | settings)
    choose_devices(config)
    if isinstance(expected, tuple):
        check_processes(config)
        assert (config.devices, config.num_nodes) == expected
    else:
        refuses(expected, check_processes, config)


def test_the_nodes_must_be_those_of_the_launcher_even_if_the_product_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, "torchrun", 2, 1)
    with pytest.raises(UserError, match=r"is 2: set trainer.devices=1 trainer.num_nodes=2, as torchrun started them"):
        check_processes(TrainerConfig(devices=2))


@pytest.mark.parametrize(("by", "devices"), [("torchrun", (4, 2)), ("SLURM", (4, 2)), ("a script", (8, 1))])
def test_a_resumed_run_takes_the_nodes_that_were_started(monkeypatch, tmp_path, by, devices):
    """Its one node had as many processes as two have now; a script does not tell the nodes."""
    start(monkeypatch, by, 2, 4)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    cfg = compose_by_hydra([f"resume={make_run(tmp_path / 'half', Config(trainer=TrainerConfig(devices=8)))}"])
    prepare = Mock(side_effect=UserError("the run would be resumed"))
    monkeypatch.setattr("seq2seq.training.run_folder.prepare_folder", prepare)
    refuses("the run would be resumed", train.start, cfg, cfg.pop("hydra"))
    trainer = prepare.call_args.args[0].trainer
    assert (trainer.devices, trainer.num_nodes) == devices


@pytest.mark.parametrize(
    ("by", "changes", "message"),
    [
        ("SLURM", {"SLURM_NTASKS_PER_NODE": None}, "SLURM started 4 processes on 2 nodes, an unknown number on this"),
        ("SLURM", {"SLURM_NTASKS": "3"}, "3 processes on 2 nodes, 2 on this one: start as many on each, by srun"),
        ("torchrun", {"WORLD_SIZE": "6"}, r"torchrun started 6 processes on 2 nodes, 2 on this one"),
        ("a script", {"MASTER_ADDR": None}, "RANK and WORLD_SIZE are set, but not MASTER_ADDR: set it, or start"),
    ],
)
def test_a_launcher_that_contradicts_itself_is_refused(monkeypatch, by, changes, message):
    start(monkeypatch, by, 2, 2)
    for name, value in changes.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    refuses(message, choose_devices, TrainerConfig(devices=2, num_nodes=AUTO))


def test_without_a_launcher_there_is_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrainerConfig(devices=4, num_nodes=AUTO)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    choose_devices(config)
    check_processes(config)  # Lightning starts the others
    assert config.num_nodes == 1
    with pytest.raises(UserError, match=r"num_nodes=2, but neither .*: run torchrun --nnodes 2 --nproc-per-node 4"):
        check_processes(TrainerConfig(devices=4, num_nodes=2))


def test_a_sweep_starts_no_processes_of_its_own() -> None:
    check_processes(TrainerConfig(devices=1), is_sweep=True)
    with pytest.raises(UserError, match=r"a sweep cannot start 2 processes.*torchrun --nproc-per-node 2"):
        check_processes(TrainerConfig(devices=2), is_sweep=True)


def test_processes_that_lightning_starts_inherit_what_the_first_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broadcast_decision("colour", lambda: "blue") == "blue"
    assert broadcast_decision("colour", lambda: "red") == "red"  # of the next run in this process
    monkeypatch.setattr(processes, "rank", lambda: 1)
    assert broadcast_decision("colour", lambda: pytest.fail("the first decides")) == "red"
    monkeypatch.delenv("SEQ2SEQ_COLOUR")
    with pytest.raises(UserError, match="does not know the first one: start several nodes by torchrun or SLURM"):
        broadcast_decision("colour", lambda: pytest.fail("the first decides"))


@pytest.mark.parametrize(
    ("gpus", "settings", "devices"),
    [
        (4, {"devices": "auto"}, 4),
        (0, {"devices": "auto"}, 1),
        (4, {"devices": "auto", "accelerator": "cpu"}, 1),
        (0, {"devices": 2}, 2),  # processes of a CPU
    ],
)
def test_all_devices_are_taken_unless_a_number_is_named(monkeypatch, gpus, settings, devices):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    config = TrainerConfig(**settings)
    choose_devices(config)
    assert config.devices == devices


def test_apples_gpu_is_not_taken_which_the_log_says(monkeypatch, caplog):
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
    with pytest.raises(UserError, match=r"trainer.devices=4 but this machine has 2 GPUs: set trainer.devices=2"):
        choose_devices(TrainerConfig(devices=4))
    start(monkeypatch, "torchrun", 1, 4)
    with pytest.raises(UserError, match=r"trainer.devices=4 but this machine has 2 GPUs: start 2 processes on each"):
        choose_devices(TrainerConfig(devices=AUTO))  # which takes those of the launcher
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    refuses(r"trainer.accelerator=gpu but there is no CUDA device", choose_devices, TrainerConfig(accelerator="gpu"))
    with pytest.raises(UserError, match=r"trainer.replay=true records updates on a GPU, and there is no CUDA device"):
        choose_devices(TrainerConfig(replay=True))
