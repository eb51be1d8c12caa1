"""The command that learns a shortlist: which target subwords each source subword needs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from seq2seq.cli import options, shared
from seq2seq.errors import UserError
from seq2seq.storage.atomic import resolve
from seq2seq.storage.output import open_output, require_other, require_writable

File = Annotated[Path, options.files("--output", help="Shortlist to write.")]
Best = Annotated[int, typer.Option(min=1, help="Most target subwords of each source subword.")]
Frequent = Annotated[
    int, typer.Option(min=0, help="Number of most frequent target subwords, which are allowed in every text.")
]
Vmap = Annotated[
    Path | None, options.files("--vmap", help="Also write this file for CTranslate2: vmap.txt in the export's folder.")
]


def shortlist(
    output: File, model: options.OneModel = None, best: Best = 100, frequent: Frequent = 300, vmap: Vmap = None
) -> None:
    """Learn which target subwords each source subword needs, so that translation is faster.

    [bold]seq2seq shortlist --model runs/NAME --output shortlist.bin[/bold]   then translate --shortlist shortlist.bin

    The shortlist is learnt from the run's training pairs (IBM Model 1) in the cache; pairs that the cache lacks are
    prepared again. A translation may then contain only the subwords that its batch's source subwords need, these source
    subwords themselves, and the frequent subwords. Smaller numbers are faster, but cost more quality. See
    docs/decoding.md.
    """
    (bundle,) = shared.choose_models([model] if model else None)
    run = bundle.resolve().parent
    if not (run / "config.yaml").is_file():
        raise UserError(
            f"{bundle} has no run beside it, whose training pairs the shortlist is learned from: give --model runs/NAME"
        )
    for file in (output, vmap):
        require_other(file, run / "config.yaml", *(bundle / name for name in ("config.json", "model.safetensors")))
    require_writable(output)
    if vmap is not None:
        require_writable(vmap)
        if resolve(vmap) == resolve(output):
            raise UserError(f"--output and --vmap are both {vmap}: name two files")
    from seq2seq.data.prepare import prepare
    from seq2seq.settings.loading import load_config
    from seq2seq.text.vocabulary import load_tokenizers
    from seq2seq.training.ibm_model1 import learn_shortlist

    config = load_config(str(run), [], option="--model ")
    prepared = prepare(config.data, config.tokenizer)
    tokenizer = load_tokenizers(bundle)
    if prepared.tokenizer.digest != tokenizer.digest:
        raise UserError(f"the texts of {run} have changed since its training: restore the files that data.train names")
    learnt = learn_shortlist(prepared.train, tokenizer, best=best, frequent=frequent)
    learnt.save(output)
    if vmap is not None:
        with open_output(vmap) as out:
            for line in learnt.vmap(tokenizer.target.tokens(range(tokenizer.target.vocab_size))):
                out(line)
    of_each = len(learnt.targets) / max(1, int((learnt.offsets[1:] > learnt.offsets[:-1]).sum()))
    size = len(learnt.by_frequency)
    print(
        f"{output}: {len(learnt.always):,} of {size:,} subwords for every text, and {of_each:.0f} for a "
        f"source subword; from {len(prepared.train):,} pairs",
        file=sys.stderr,
    )
