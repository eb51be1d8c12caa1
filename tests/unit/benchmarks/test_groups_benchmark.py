"""What `python -m benchmarks groups` leaves out."""

from dataclasses import fields

import pytest

from benchmarks.groups import MODIFIERS, without_modifiers
from seq2seq.settings.compose import compose
from seq2seq.settings.training import ModifiersConfig

SETTINGS = ["experiment=mixed_cpu", "data.root=texts"]


def changed_pairs(settings: list[str]) -> dict[str, float]:
    """Return the share of the pairs that each family changes."""
    modifiers = compose(settings).training.modifiers
    weights = {name: value for name, value in vars(modifiers).items() if name not in ("share", "own")}
    return {name: modifiers.share * weight / sum(weights.values()) for name, weight in weights.items()}


def test_each_family_is_in_one_group() -> None:
    names = " ".join(MODIFIERS.values()).split()
    assert sorted(["share", "own", *names]) == sorted(one.name for one in fields(ModifiersConfig))


def test_without_a_group_every_other_family_changes_as_many_pairs() -> None:
    shares = changed_pairs([*SETTINGS, *without_modifiers(SETTINGS, "code dates")])
    assert shares == pytest.approx({**changed_pairs(SETTINGS), "code": 0, "dates": 0})
