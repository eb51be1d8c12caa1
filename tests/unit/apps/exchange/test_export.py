"""A bundle in half the space; and the model card of an export is the bundle's, with the other library's usage first."""

import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from seq2seq.apps.exchange.export import export_bundle, require_exportable, write_card
from seq2seq.model import attention, layers
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
    refuses("is there already: give --output a new or empty folder", export_bundle, folder, tmp_path / "half")
    large = load_file(folder / weights)
    large["embedding.weight"].fill_(7e4)
    save_file(large, folder / weights)
    refuses(r"weights above 65,504, .* keep float32", export_bundle, folder, tmp_path / "inf", "float16")
    assert not (tmp_path / "inf").exists()


@pytest.mark.parametrize("code", ["attention_weights", "Residual"])
def test_a_model_whose_code_was_changed_is_refused_and_leaves_nothing(
    exporter, bundle_folder, tmp_path, monkeypatch, code
):
    weights, residual = attention.attention_weights, layers.Residual.forward
    if code == "Residual":
        monkeypatch.setattr(layers.Residual, "forward", lambda self, x, sublayer: residual(self, 2 * x, sublayer))
    else:
        monkeypatch.setattr(attention, "attention_weights", lambda queries, *rest: weights(2 * queries, *rest))
    refuses("gives other scores than the model's code here, which was", exporter, bundle_folder, tmp_path / "export")
    assert not (tmp_path / "export").exists()


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_the_cards_commands_translate(exporter, bundle_folder, tmp_path, capsys):
    exporter(bundle_folder, tmp_path / "export")
    card = (tmp_path / "export" / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert "The ball is blue." in code
    exec(code.replace("FOLDER", str(tmp_path / "export")).replace("generate(", "generate(max_new_tokens=5, "), {})
    assert capsys.readouterr().out.strip()


def test_a_folder_that_is_taken_is_refused_and_kept(exporter, bundle_folder, tmp_path):
    (tmp_path / "mine.txt").write_text("dear to me")
    refuses("is there already: give --output a new or empty folder", exporter, bundle_folder, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("key", "value"),
    [(key, "none") for key in ("positions", "decoder_mask", "cross_attention")]
    + [("relevance", value) for value in ("shared", "uniform", "unscaled")],
)
def test_an_ablation_is_refused_by_name(random_model, key: str, value: str) -> None:
    message = rf"^model\.{key}={value}: such an ablation cannot be exported"
    refuses(message, require_exportable, random_model(30, **{key: value}))
