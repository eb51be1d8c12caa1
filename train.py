"""Train a translation model: `python train.py`, `python train.py --help`, `python train.py experiment=tatoeba_cpu`."""

from seq2seq.cli.train import main

if __name__ == "__main__":
    main()
