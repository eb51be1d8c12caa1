"""All sentence patterns, each a function from luck to a sentence pair, with their shares."""

from grammar.patterns import asking, comparing, describing, doing, joining, people, places

PATTERNS = (
    *describing.PATTERNS,
    *places.PATTERNS,
    *comparing.PATTERNS,
    *doing.PATTERNS,
    *people.PATTERNS,
    *asking.PATTERNS,
    *joining.PATTERNS,
)
