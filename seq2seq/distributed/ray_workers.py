"""Run tasks as a Ray Data job, on a cluster or on this machine. Every node must be able to read the files."""

import logging
import pickle
import traceback
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

import ray
import ray.data
from ray.exceptions import RayError

from seq2seq.errors import UnfinishedError, UserError

Task = TypeVar("Task")
Result = TypeVar("Result")
_AT_ONCE = 1000  # tasks of one job
_STORE = 100 << 20  # bytes of Ray's object store on this machine: tasks and results are small, texts stay in files
_AGAIN = ": the same command goes on from what is done"
_SHOWN = 200  # characters of a Ray error that a message quotes


class RayWorkers:
    """Maps functions over tasks on a Ray cluster; results come in the order of the tasks.

    Attributes:
        size: number of CPUs in the cluster.
    """

    size = 1

    def __init__(self, address: str) -> None:
        """Take a cluster's address, "auto" for the cluster that runs here, or "local" to start a cluster here."""
        self.address = address

    def __enter__(self) -> "RayWorkers":
        """Connect, unless this process is connected already.

        Raises:
            UserError: there is no cluster at the address.
        """
        self._started = not ray.is_initialized()
        if self._started:
            own: dict[str, Any] = {"include_dashboard": False, "object_store_memory": _STORE}
            try:
                ray.init(
                    address=self.address,
                    logging_level=logging.ERROR,
                    log_to_driver=False,
                    **(own if self.address == "local" else {}),
                )
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise UserError(
                    f"--ray {self.address}: no Ray cluster there ({_shown(error)}); try --ray local"
                ) from error
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # errors are raised and reported once
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True
        self.size = max(1, int(ray.cluster_resources().get("CPU", 1)))
        return self

    def __exit__(self, *_: object) -> None:
        if self._started:
            ray.shutdown()

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Apply a module-level function to the tasks.

        Raises:
            UnfinishedError: the cluster or the function failed.
            UserError: the function raised it.
        """
        return _results(tasks, _Work(lambda: function))

    def map_with(
        self,
        make: Callable[[], Callable[[Task], Result]],
        tasks: Iterable[Task],
        *,
        workers: int,
        num_cpus: int,
        num_gpus: int = 0,
    ) -> Iterator[Result]:
        """Apply a function to the tasks as `map` does; `make` makes the function once in each of `workers` actors."""
        actors = ray.data.ActorPoolStrategy(size=workers)
        resources = {"num_cpus": num_cpus, "num_gpus": num_gpus}
        return _results(tasks, _Work, compute=actors, fn_constructor_args=(make,), **resources)


def _results(tasks: Iterable[Any], work: Any, **how: Any) -> Iterator[Any]:
    iterator = iter(tasks)
    while some := list(islice(iterator, _AT_ONCE)):
        rows = ray.data.from_items([{"task": pickle.dumps(task)} for task in some], override_num_blocks=len(some))
        try:
            for row in rows.map(work, **how).iter_rows():
                result, error = pickle.loads(row["result"])
                if error is not None:
                    raise error
                yield result
        except RayError as error:
            raise UnfinishedError(f"the Ray job failed ({_shown(error)}){_AGAIN}") from error


def _shown(error: Exception) -> str:
    """Return the last line of a Ray error: the cause, which follows a remote traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:_SHOWN]


class _Work:
    """Turns a task's row into its result's row: the value, or the error.

    `make` is called at the first task, so that its errors are reported like the function's.
    """

    def __init__(self, make: Callable[[], Callable[[Any], Any]]) -> None:
        self._make = make
        self._function: Callable[[Any], Any] | None = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        try:
            self._function = self._function or self._make()
            result = self._function(pickle.loads(row["task"])), None
        except UserError as error:
            result = None, error
        except Exception as error:  # such as a full disk; Ray would hide the cause
            failure = UnfinishedError(f"the Ray job failed ({type(error).__name__}: {error}){_AGAIN}")
            failure.add_note(traceback.format_exc())
            result = None, failure
        return {"result": pickle.dumps(result)}
