"""Write docs/settings.md: all options and settings, from the comments in `conf/` and `seq2seq/settings/`."""

from pathlib import Path

from seq2seq.settings.compose import compose, home
from seq2seq.settings.config import Config, meanings, options

PAGE = Path(__file__).with_suffix(".md")
HEADER = """\
# Settings

Generated from the comments in `conf/` and `seq2seq/settings/`; do not edit. `python train.py --help` shows the same.

The precedence is Hydra's; the last wins: the defaults, the options of the groups, the experiment, the options of the
command line, the values of the command line. An option of `data` may select the options that suit its text, unless the
command line names others: `data=bundled`, which is the default, selects `model=tiny` and `training=short`. A recipe
(`experiment=tatoeba_cpu`) selects options, which the command line replaces; an ablation (`experiment=lab/…`) or a
technique (`experiment=modifiers`) sets values, which stay, whatever options the command line names.
[Automatic values](automatic.md) describes the rules that replace `auto`. Defaults below are those of `data=files`.
"""


def markdown(conf: Path, config: Config) -> str:
    """Return all options and settings in Markdown."""
    lines = [HEADER, "## Groups\n", "| option | meaning |", "|---|---|", *map(_row, options(conf))]
    lines += ["\n## Values\n", "| value and default | meaning |", "|---|---|", *map(_row, meanings(config))]
    return "\n".join(lines) + "\n"


def _row(described: tuple[str, str]) -> str:
    name, meaning = (text.replace("|", "\\|") for text in described)
    return f"| `{name}` | {meaning} |"


if __name__ == "__main__":
    PAGE.write_text(markdown(home() / "conf", compose(["data=files"])), encoding="utf-8")
