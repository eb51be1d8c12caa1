"""Tables of results for the terminal, or as Markdown for docs/performance.md."""

from dataclasses import dataclass

import rich.table


@dataclass(frozen=True)
class Table:
    """A table of texts; the first column has names, the others have numbers."""

    title: str
    header: list[str]
    rows: list[list[str]]

    def to_rich(self) -> rich.table.Table:
        """Return the table for the terminal."""
        table = rich.table.Table(title=self.title, title_justify="left")
        for index, name in enumerate(self.header):
            table.add_column(name, justify="left" if index == 0 else "right")
        for row in self.rows:
            table.add_row(*row)
        return table

    def to_markdown(self) -> str:
        """Return the table as Markdown."""
        rule = ["---", *["---:"] * (len(self.header) - 1)]
        return "\n".join("| " + " | ".join(cells) + " |" for cells in (self.header, rule, *self.rows))
