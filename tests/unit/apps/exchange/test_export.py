"""A bundle in half the space; and the model card of an export is the bundle's, with the other library's usage first."""

import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from seq2seq.apps.exchange.export import export_bundle, write_card
from seq2seq.errors import UserError
from seq2seq.translate.bundle import load_bundle
from tests.refusing import refuses

CARD = """---
library_name: {library}
---

# one: en→es translation

An encoder–decoder Transformer.

{usage}
## Data

25 pairs.

## Recipe

```json
{{}}
```
"""
COMMAND = """```
seq2seq translate --model FOLDER "The ball is blue."
```
"""
PYTHON = """```python
import another
```
"""
MASKS = "another masks no strings, so addresses, placeholders and code may change; `seq2seq translate` keeps them.\n"


def test_the_other_librarys_usage_takes_the_place_of_this_programs_command(tmp_path: Path):
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "README.md").write_text(CARD.format(library="seq2seq", usage=COMMAND))
    write_card(tmp_path / "bundle", tmp_path, "another", PYTHON)
    expected = CARD.format(library="another", usage=f"## Use with another\n\n{PYTHON}\n{MASKS}")
    assert (tmp_path / "README.md").read_text() == expected


def test_a_card_that_is_no_text_is_kept_as_far_as_it_is_text_and_an_endless_one_is_not_read(tmp_path: Path):
    (tmp_path / "bundle").mkdir()
    card = tmp_path / "bundle" / "README.md"
    card.write_bytes(b"caf\xe9\n\n## Data\n")
    write_card(tmp_path / "bundle", tmp_path, "another", "usage\n")
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert text.startswith("caf\ufffd\n\n## Use with another\n\nusage\n\nanother masks no strings")
    assert text.endswith("keeps them.\n\n## Data\n")
    os.truncate(card, 10**12)
    refuses(r"README.md has 1,000,000,000,000 bytes", write_card, tmp_path / "bundle", tmp_path, "another", "usage\n")


def test_a_bundle_in_half_precision_has_the_same_settings_and_nearly_the_same_weights(bundle_folder, tmp_path):
    folder = Path(shutil.copytree(bundle_folder, tmp_path / "whole"))
    export_bundle(folder, tmp_path / "half", "float16")
    weights = "model.safetensors"
    assert (tmp_path / "half" / weights).stat().st_size < 0.6 * (folder / weights).stat().st_size
    whole, half = load_bundle(folder), load_bundle(tmp_path / "half")
    assert half.config == whole.config
    for name, tensor in whole.model.state_dict().items():
        torch.testing.assert_close(half.model.state_dict()[name], tensor, rtol=2**-11, atol=2**-24)
    assert (tmp_path / "half/README.md").read_text() == (folder / "README.md").read_text()
    with pytest.raises(UserError, match="is there already: give --output a new or empty folder"):
        export_bundle(folder, tmp_path / "half", "float16")
    large = load_file(folder / weights)
    large["embedding.weight"].fill_(7e4)
    save_file(large, folder / weights)
    refuses(r"weights above 65,504, .* keep float32", export_bundle, folder, tmp_path / "inf", "float16")
    assert not (tmp_path / "inf").exists()
