"""Write the bundled corpus: `python -m seq2seq.text.grammar --output data/bundled`."""

import argparse
import logging
from pathlib import Path

from seq2seq.text.grammar.corpus import generate, write


def main() -> None:
    """Generate and write the three files."""
    parser = argparse.ArgumentParser(prog="python -m seq2seq.text.grammar", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("data/bundled"), help="folder for grammar.*.tsv")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for path in write(parser.parse_args().output, generate()):
        logging.info("%s", path)


if __name__ == "__main__":
    main()
