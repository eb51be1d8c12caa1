from pathlib import Path

import pytest

from seq2seq.training.run_files import forget_after, read_metrics


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("", []),
        ("step,loss\n", []),
        ("step,loss\n1,3.5\n2,3.4\n3,3.3\n", ["1", "2"]),
        ("step,loss\n1,3.5\n2,3,4,5\n", ["1"]),
        ("step,loss\n1,3.5\n2," + "9" * 200_000 + "\n", ["1"]),
        ("step,loss\n1,3.5\n2", ["1"]),
    ],
    ids=["empty", "no rows", "later rows", "too many fields", "a field too long", "truncated"],
)
def test_later_and_damaged_rows_go(tmp_path: Path, text: str, steps: list[str]):
    path = tmp_path / "metrics.csv"
    path.write_text(text)
    forget_after(path, 2, validated=True)
    assert [row["step"] for row in read_metrics(tmp_path) if row["loss"]] == steps
    assert [one.name for one in tmp_path.iterdir()] == ["metrics.csv"]


def test_a_step_of_thousands_of_digits_is_dropped_on_resume(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(f"step,loss\n1,2.0\n{'9' * 5000},1.0\n")
    forget_after(path, 1, validated=True)
    assert path.read_text().splitlines() == ["step,loss", "1,2.0"]
