import pytest

from seq2seq.config import TrainerConfig
from seq2seq.errors import UserError
from seq2seq.training import processes
from seq2seq.training.processes import agree, check_processes

LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_NTASKS", "SEQ2SEQ_COLOUR")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in LAUNCHER:
        monkeypatch.setenv(variable, "")  # so that it is as before afterwards, whatever the test sets
        monkeypatch.delenv(variable)


def set_all(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_processes_and_devices_have_to_be_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    check_processes(TrainerConfig(devices=4))  # Lightning starts the others
    set_all(monkeypatch, RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    check_processes(TrainerConfig(devices=2))
    check_processes(TrainerConfig(devices=1, num_nodes=2))
    with pytest.raises(UserError, match=r"2 processes were started, but trainer.devices=1 × trainer.num_nodes=1 is 1"):
        check_processes(TrainerConfig(devices=1))


def test_slurms_tasks_count_as_started(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, SLURM_NTASKS="3", SLURM_NTASKS_PER_NODE="3", SLURM_JOB_NAME="train", SLURM_JOB_ID="7")
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
