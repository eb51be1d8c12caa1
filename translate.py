"""`python translate.py` is `seq2seq translate`: see `python translate.py --help`."""

from seq2seq.cli import main, translate_app

if __name__ == "__main__":
    main(translate_app)
