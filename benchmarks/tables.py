"""Results for people: in the terminal, or as Markdown for docs/performance.md."""

from dataclasses import dataclass

import rich.table


@dataclass(frozen=True)
class Table:
    """Cells as they are to be read; the first column names, the others are numbers."""

    title: str
    header: list[str]
    rows: list[list[str]]

    def to_rich(self) -> rich.table.Table:
        """For the terminal."""
        table = rich.table.Table(title=self.title, title_justify="left")
        for index, name in enumerate(self.header):
            table.add_column(name, justify="left" if index == 0 else "right")
        for row in self.rows:
            table.add_row(*row)
        return table

    def to_markdown(self) -> str:
        """For a page."""
        rule = ["---", *["---:"] * (len(self.header) - 1)]
        return "\n".join("| " + " | ".join(cells) + " |" for cells in (self.header, rule, *self.rows))
