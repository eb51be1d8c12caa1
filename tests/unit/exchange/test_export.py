"""The model card of an export is the bundle's, with the other library's usage first."""

from pathlib import Path

import pytest

from seq2seq.errors import UserError
from seq2seq.exchange.export import write_card

CARD = """---
library_name: seq2seq
---

# one: en→es translation

An encoder–decoder Transformer.

```
seq2seq translate --model FOLDER "The ball is blue."
```

## Data

25 pairs.

## Recipe

```json
{}
```
"""


def test_the_other_librarys_usage_takes_the_place_of_this_programs_command(tmp_path: Path):
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "README.md").write_text(CARD)
    write_card(tmp_path / "bundle", tmp_path, "another", "```python\nimport another\n```\n")
    assert (
        (tmp_path / "README.md").read_text()
        == """---
library_name: another
---

# one: en→es translation

An encoder–decoder Transformer.

## Use with another

```python
import another
```

## Data

25 pairs.

## Recipe

```json
{}
```
"""
    )


def test_a_card_that_is_no_text_is_kept_as_far_as_it_is_text(tmp_path: Path):
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "README.md").write_bytes(b"caf\xe9\n\n## Data\n")
    write_card(tmp_path / "bundle", tmp_path, "another", "usage\n")
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert text == "caf\ufffd\n\n## Use with another\n\nusage\n\n## Data\n"


def test_an_endless_card_is_not_read(tmp_path: Path):
    (tmp_path / "bundle").mkdir()
    with (tmp_path / "bundle" / "README.md").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(UserError, match=r"README.md has 1,000,000,000,000 bytes"):
        write_card(tmp_path / "bundle", tmp_path, "another", "usage\n")
