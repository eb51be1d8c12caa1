"""The model card of an export is the bundle's, with the other library's usage first."""

from pathlib import Path

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
