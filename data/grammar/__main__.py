"""Write the bundled corpus: `python data/grammar --output data/bundled`."""

import argparse
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the folder in which `grammar` lies
from grammar.corpus import generate, write


def main() -> None:
    """Generate the corpus and write its three files."""
    parser = argparse.ArgumentParser(prog="python data/grammar", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("data/bundled"), help="folder for grammar.*.tsv")
    folder: Path = parser.parse_args().output
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        paths = write(folder, generate())
    except OSError as error:
        parser.error(f"cannot write to --output {folder}: {error.strerror}; name a folder that you may write to")
    for path in paths:
        logging.info("%s", path)


if __name__ == "__main__":
    main()
