"""`seq2seq export`: a model as another program reads it."""

import sys

from seq2seq.cli import jobs, options
from seq2seq.errors import UserError
from seq2seq.extras import needing


def export(
    format_: options.ExportFormat,
    output: options.NewFolder,
    model: options.OneModel = None,
    quantization: options.Quantization = options.Precision.float32,
    debug: options.Debug = False,
) -> None:
    """Write a model as a folder that another program translates with by itself.

    [bold]seq2seq export ctranslate2 --quantization int8 --output FOLDER[/bold]   float32, int8 or float16

    [bold]seq2seq export huggingface --output FOLDER[/bold]   a MarianMTModel with its tokenizer
    """
    if format_ is options.ExportName.huggingface and quantization is not options.Precision.float32:
        raise UserError(
            f"export huggingface writes float32 weights, so --quantization {quantization.value} would do nothing: "
            f"leave it out, or use `seq2seq export ctranslate2 --quantization {quantization.value}`"
        )
    (folder,) = jobs.choose_models([model] if model else None)
    with needing("ctranslate2" if format_ is options.ExportName.ctranslate2 else "huggingface"):
        if format_ is options.ExportName.ctranslate2:
            from seq2seq.exchange.ctranslate2 import export_ctranslate2

            export_ctranslate2(folder, output, quantization.value)
        else:
            from seq2seq.exchange.huggingface import export_huggingface

            export_huggingface(folder, output)
    print(f"{output}: {folder} for {format_.value}", file=sys.stderr)
