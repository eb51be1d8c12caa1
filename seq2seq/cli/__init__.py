"""The command line `seq2seq`. Commands import slow modules only when they run."""

import itertools
import logging
import sys
import traceback

import typer

from seq2seq.cli import analyse, attend, corpora, evaluate, models, options, runs, serve, translate
from seq2seq.cli.inputs import standard_streams
from seq2seq.errors import UserError, printable

INTERRUPTED = 130  # exit status after Ctrl-C; Typer exits with it instead of raising the exception


def train_command(overrides: options.Overrides = None) -> None:
    """Train a model. This is the same program as train.py; seq2seq train --help lists groups and values.

    [bold]seq2seq train data=files 'data.train=[mine.tsv]'[/bold]   writes the model to runs/NAME/model
    """
    from seq2seq.cli import train

    train.main(overrides or [])


app = options.Application(
    "Train models, translate with them, score translations, and exchange models with other programs.", name="seq2seq"
)
app.command()(translate.translate)
for command in (evaluate.evaluate, analyse.analyse):
    app.command(cls=options.ManyValues)(command)
for command in (evaluate.score, models.export):
    app.command()(command)
app.command("import")(models.import_)
as_train_py = {"ignore_unknown_options": True, "help_option_names": []}
typer.Typer.command(app, "train", context_settings=as_train_py)(train_command)  # train.py reads --debug itself
for command in (runs.runs, attend.attend, models.shortlist, models.average, corpora.distill, corpora.backtranslate):
    app.command()(command)
for command in (corpora.prepare, translate.bulk_translate):
    app.command()(command)
app.add_typer(runs.app, name="lab")
app.command()(serve.serve)
translate_app = options.Application(None, no_args_is_help=False)
translate_app.command()(translate.translate)


def main(application: typer.Typer = app) -> None:
    """Run a command; a user's mistake gives one line on stderr (a traceback with --debug) and exit status 1.

    So does a file that the system does not let a command read or write.
    """
    warnings = _OneLine(logging.WARNING)
    logging.getLogger().addHandler(warnings)
    try:
        with standard_streams():
            application()
    except (UserError, OSError) as error:
        if "--debug" in itertools.takewhile(lambda argument: argument != "--", sys.argv[1:]):
            raise
        message = str(error)
        if isinstance(error, OSError) and error.filename is not None:
            message = f"{error.filename}: {error.strerror}"
        sys.exit("error: " + printable(" ".join(message.split())))
    except SystemExit as error:
        if error.code == INTERRUPTED:
            print("error: interrupted", file=sys.stderr)
        raise
    finally:
        logging.getLogger().removeHandler(warnings)


class _OneLine(logging.Handler):
    """Prints each warning as one line on the present stderr (a visible progress bar replaces stderr).

    A logged exception's traceback follows: a server continues after an exception, and only the traceback says where
    the exception occurred.
    """

    def emit(self, record: logging.LogRecord) -> None:
        trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
        message = printable(" ".join(record.getMessage().split()))
        print(f"{record.levelname.lower()}: {message}\n{trace}", end="", file=sys.stderr)
