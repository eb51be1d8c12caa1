"""A finished sentence pair and the combinations of words that it shows."""

from dataclasses import dataclass

from grammar.agreement import Text
from grammar.phrases import Combination, Phrase
from grammar.spanish import contract


@dataclass(frozen=True)
class Pair:
    """An English sentence and its Spanish.

    `combinations` holds tuples of content words, such as (noun, adjective) and (subject, verb, object): splits hold
    them out.
    """

    text: Text
    combinations: frozenset[Combination]


def said(text: Text, *combinations: Combination, phrases: tuple[Phrase, ...] = (), mark: str = ".") -> Pair:
    """Finish a statement, or a command with another mark."""
    return Pair(Text(capital(text.en) + mark, capital(contract(text.es)) + mark), gather(combinations, phrases))


def asked(text: Text, *combinations: Combination, phrases: tuple[Phrase, ...] = ()) -> Pair:
    """Finish a question."""
    return Pair(Text(f"{capital(text.en)}?", f"¿{capital(contract(text.es))}?"), gather(combinations, phrases))


def gather(combinations: tuple[Combination, ...], phrases: tuple[Phrase, ...]) -> frozenset[Combination]:
    """Collect a sentence's combinations and those inside its noun phrases."""
    return frozenset(combinations).union(*(phrase.combinations for phrase in phrases))


def capital(text: str) -> str:
    """Begin with a capital letter."""
    return text[:1].upper() + text[1:]
