"""A run goes on with the very texts that it began with, wherever they are now, in the same order."""

from pathlib import Path
from typing import Any

import pytest

from seq2seq.data.prepare import corpus_digests
from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.settings.training import ModifiersConfig, SubwordSamplingConfig, TrainingConfig
from seq2seq.training.run_folder import describe_run, require_same_run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("en/x.txt", "es/x.txt", "a.tsv", "b.tsv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{name}\tno\n")
    return tmp_path


def describe(root: Path, *train: str) -> dict[str, Any]:
    config = Config(data=DataConfig(root=str(root), train=list(train)))
    return describe_run(config, corpus_digests(config.data))


@pytest.mark.parametrize("changed", ["en/x.txt", "es/x.txt", "a.tsv"])
def test_a_changed_text_is_refused_by_its_files_name(root: Path, changed: str) -> None:
    """Parallel files may have the same name in two folders."""
    texts = ("en/x.txt+es/x.txt", "a.tsv")
    then = describe(root, *texts)
    require_same_run(Path("r"), then, describe(root, *texts))
    (root / changed).write_text("other\ttext\n")
    with pytest.raises(UserError, match=rf"resume=r: data.train: .*{changed}\)? has changed since this run read it"):
        require_same_run(Path("r"), then, describe(root, *texts))


@pytest.mark.parametrize("is_outside", [False, True])
def test_texts_that_have_moved_are_the_same(root: Path, tmp_path: Path, is_outside: bool) -> None:
    def describe_in(folder: Path) -> dict[str, Any]:
        if not is_outside:
            return describe(folder, "en/x.txt+es/x.txt", "a.tsv")
        return describe(tmp_path / "root", f"{folder}/en/x.txt+{folder}/es/x.txt", f"{folder}/a.tsv")

    then, moved = describe_in(root), root / "moved"
    moved.mkdir()
    for name in ("en", "es", "a.tsv"):
        (root / name).rename(moved / name)
    require_same_run(Path("r"), then, describe_in(moved))


def test_texts_in_another_order_or_number_are_refused(root: Path) -> None:
    then = describe(root, "a.tsv", "b.tsv")
    with pytest.raises(UserError, match=r"resume=r: data.train: a.tsv does not come where it came .* order"):
        require_same_run(Path("r"), then, describe(root, "b.tsv", "a.tsv"))
    with pytest.raises(UserError, match=r"data.train: b.tsv, again is new since"):
        require_same_run(Path("r"), then, describe(root, "a.tsv", "b.tsv", "b.tsv"))


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("seed", {"seed": 7}),
        ("training.max_tokens", {"training": TrainingConfig(max_tokens=512)}),
        ("training.subword_sampling", {"training": TrainingConfig(subword_sampling=SubwordSamplingConfig(alpha=0.2))}),
        ("training.modifiers", {"training": TrainingConfig(modifiers=ModifiersConfig(share=0.1))}),
        ("data.weights", {"data": DataConfig(weights={"a.tsv": 0.0})}),
        ("data.max_length", {"data": DataConfig(max_length=99)}),
        ("tokenizer.vocab_size", {"tokenizer": TokenizerConfig(vocab_size=777)}),
    ],
)
def test_a_setting_that_would_make_other_batches_is_refused(key: str, changes: dict[str, Any]) -> None:
    then, now = describe_run(Config(), {}), describe_run(Config(**changes), {})
    with pytest.raises(UserError, match=rf"resume=r: {key}=.* would make other batches than {key}="):
        require_same_run(Path("r"), then, now)


def test_a_setting_that_a_later_version_added_and_that_is_off_makes_the_same_batches() -> None:
    then = describe_run(Config(), {})
    del then["settings"]["training.modifiers"]["repeats"]
    require_same_run(Path("r"), then, describe_run(Config(), {}))
