"""Export a bundle as a Hugging Face `MarianMTModel` with its tokenizer and model card."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.bundle import TOKENIZER, Bundle, example, load_bundle
from seq2seq.exchange.folder import new_folder, write_card
from seq2seq.exchange.marian import MAX_POSITIONS, to_marian
from seq2seq.text.tokenizer import BOS, EOS, PAD, UNK

if TYPE_CHECKING:
    from transformers import GenerationConfig

USAGE = """```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForSeq2SeqLM.from_pretrained("FOLDER")
batch = tokenizer(["EXAMPLE"], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))
```

FOLDER is where this file lies. The lines work in transformers 4 and 5 (`pipeline("translation")` is gone from 5). Texts
are expected in Unicode NFC, with single spaces and no invisible characters.
"""


def export_huggingface(bundle: Path, folder: Path) -> None:
    """Write a bundle for transformers: model, tokenizer and search settings; the folder is whole or absent.

    Args:
        bundle: the bundle's folder.
        folder: the export's, new or empty.

    Raises:
        UserError: the model is not of the published style (model/style=vaswani), the only one that transformers has;
            the bundle is damaged; or the folder is taken or cannot be written.
    """
    loaded = load_bundle(bundle)
    model = to_marian(loaded.model)
    model.generation_config = _generation(loaded)
    with new_folder(folder) as draft:
        model.save_pretrained(draft)
        _write_tokenizer(loaded, draft)
        for side in ("source", "target"):
            shutil.copyfile(bundle / TOKENIZER, draft / f"{side}.spm")
        write_card(bundle, draft, "transformers", USAGE.replace("EXAMPLE", example(loaded.config.src_lang)))


def _generation(bundle: Bundle) -> "GenerationConfig":
    """The bundle's beam and length penalty; transformers knows no limit by the source's length.

    Its only exact search, `early_stopping="never"`, goes on to the limit for every text, so it is left off.
    """
    from transformers import GenerationConfig  # here, after seq2seq.exchange.marian made sure that it is installed

    search = bundle.config.search
    return GenerationConfig(
        num_beams=search.beam,
        length_penalty=search.length_penalty,
        suppress_tokens=[PAD, UNK, BOS],
        max_length=MAX_POSITIONS,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=EOS,
    )


def _write_tokenizer(bundle: Bundle, draft: Path) -> None:
    """Write the files that a MarianTokenizer needs besides SentencePiece's: ids of pieces, and special tokens."""
    pieces = bundle.tokenizer.tokens(range(bundle.tokenizer.vocab_size))
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": bundle.config.src_lang,
        "target_lang": bundle.config.tgt_lang,
        "separate_vocabs": False,
        "model_max_length": MAX_POSITIONS,
        "clean_up_tokenization_spaces": False,
        "pad_token": pieces[PAD],
        "unk_token": pieces[UNK],
        "bos_token": pieces[BOS],
        "eos_token": pieces[EOS],
    }
    files = {"vocab.json": {piece: number for number, piece in enumerate(pieces)}, "tokenizer_config.json": settings}
    for name, values in files.items():
        (draft / name).write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
