"""Export a bundle as a package of Argos Translate, which LibreTranslate serves.

A package is a zip archive of one folder: metadata.json, a SentencePiece model, a CTranslate2 model, a model card
(https://github.com/argosopentech/argos-translate, version 1.11).
"""

import json
import tempfile
import zipfile
from pathlib import Path

from seq2seq.apps.exchange.ctranslate2 import export_ctranslate2
from seq2seq.apps.exchange.export import write_card
from seq2seq.errors import UserError
from seq2seq.settings.bundle import CARD, SETTINGS, read_config
from seq2seq.settings.languages import language_name
from seq2seq.storage.atomic import replacing
from seq2seq.text.vocabulary import FILE, tokenizer_files
from seq2seq.translate.bundle import example

SUFFIX = ".argosmodel"
USAGE = """```
python -c "import argostranslate.package; argostranslate.package.install_from_path('{file}')"
argos-translate --from {src} --to {tgt} "{text}"
```
"""
_VERSION = "1.0"  # of the package, and the oldest Argos Translate that reads it


def export_argos(bundle: Path, file: Path, quantization: str = "float32") -> None:
    """Write a package; an error leaves no partial file.

    Args:
        bundle: the bundle's folder.
        file: the package, a new file that ends in .argosmodel.
        quantization: precision of the weights, as for `export_ctranslate2`.
    """
    if file.suffix != SUFFIX:
        raise UserError(f"{file} does not end in {SUFFIX}: give --output NAME{SUFFIX}")
    if file.exists():
        raise UserError(f"{file} is there already: give --output a new file")
    if tokenizer_files(bundle) != [FILE]:
        raise UserError(
            f"{bundle} has a tokenizer for each language, and a package of Argos Translate has one for both: "
            "train with tokenizer.joint=true, or use `seq2seq export ctranslate2`"
        )
    with tempfile.TemporaryDirectory() as name:
        model = Path(name) / "model"
        export_ctranslate2(bundle, model, quantization)
        _, config = read_config(model / SETTINGS)
        (model / SETTINGS).unlink()
        usage = USAGE.format(file=file.name, src=config.src_lang, tgt=config.tgt_lang, text=example(config.src_lang))
        write_card(bundle, model, "argostranslate", usage)
        metadata = {
            "package_version": _VERSION,
            "argos_version": _VERSION,
            "type": "translate",
            "from_code": config.src_lang,
            "from_name": language_name(config.src_lang),
            "to_code": config.tgt_lang,
            "to_name": language_name(config.tgt_lang),
        }
        root = f"translate-{config.src_lang}_{config.tgt_lang}-{_VERSION.replace('.', '_')}"
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as package:
            package.writestr(f"{root}/metadata.json", json.dumps(metadata, indent=2, ensure_ascii=False))
            package.write(model / FILE, f"{root}/sentencepiece.model")
            package.write(model / CARD, f"{root}/{CARD}")
            for path in sorted(model.iterdir()):
                if path.name not in (FILE, CARD):
                    package.write(path, f"{root}/model/{path.name}")
