from pathlib import Path

import pytest

from seq2seq.translate.translator import Translator

GOLDEN = Path(__file__).parents[3] / "golden" / "bundle"


@pytest.fixture(scope="session")
def golden() -> Translator:
    """A small trained model: one layer, pre-norm, rotary positions."""
    return Translator.load(GOLDEN, "cpu")


@pytest.fixture(scope="session")
def untrained(bundle_folder: Path) -> Translator:
    """An untrained model: two decoder layers, post-norm, sinusoidal positions."""
    return Translator.load(bundle_folder, "cpu")


@pytest.fixture(scope="module", params=["golden", "untrained"])
def translator(request: pytest.FixtureRequest) -> Translator:
    """Each of the two models."""
    return request.getfixturevalue(request.param)
