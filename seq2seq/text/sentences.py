"""Sentences and segments: cuts a text that is too long for the model."""

import itertools
import re
from collections.abc import Callable, Sequence

# Possessive quantifiers, and marks that begin only where no other mark precedes them, keep the search linear.
_CLOSERS = "[\"'”’»)\\]」』）]*+"
_SENTENCE_MARK = re.compile(
    rf"""
    (?: (?<![.?!…]) (?P<marks>[.?!…]++) (?P<closers>{_CLOSERS}) \s++ | [。！？]++ {_CLOSERS} \s*+ )
    (?= (?P<opening>[^\w\s]{{0,8}}+) (?P<next>\w*+) (?P<next_stop>\.?) )
    """,
    re.VERBOSE,
)
_CLAUSE_END = re.compile(rf"(?<![;:,])[;:,]++{_CLOSERS}\s++")
_WHITE_SPACE = re.compile(r"\s++")
_LAST_WORDS = re.compile(r"(?>(?:\b\w{1,2}\.\s?)*)[\w°'’]*$")  # several if all but the last are short: p. ej
_ROMAN_NUMBER = re.compile(r"[IVXLC]+")
_WINDOW = 24  # characters that are searched for an abbreviation


def _words(listing: str) -> frozenset[str]:
    return frozenset(listing.split())


# English and Spanish abbreviations without their last full stop and without spaces. A small first letter of two or more
# stands for the capital too.
_NEVER_LAST = _words("""
    mr mrs Ms messrs dr drs prof Gen Col Maj Capt Cmdr Sgt Lt Cpl Sen Rep Gov Pres Rev Hon Mt Ft Fr Supt Insp
    vs cf viz e.g i.e approx
    sres sra sras srta srtas dra dras profa dña Dn Lic Lcda Lcdo Ing Arq Abg Cap Cnel gral Mons Sto Sta Hno Hna Pbro
    Tte Cte av avda p.ej v.gr admón
""")
_BEFORE_NUMBERS = _words("""
    No Nos N° p pp v vol vols ch chs chap fig figs sec sect art arts eq eqs ext tel
    Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec
    núm núms nro n° nº pág págs párr párrs cap caps s ss t aprox secc apdo apto tfno
    ene feb abr Ago dic
""")
_BEFORE_NAMES = _words("St Jr Sr sr Ave Blvd Rd Inc Ltd Co co Corp Bros")
_BEFORE_SMALL_LETTERS = _words("a.m p.m A.M P.M ft hr hrs min a.C d.C a etc ud uds vd vds izq dcha dpto")
_SENTENCE_STARTS = _words("""
    The This That These Those There Here He She It They We You I My His Its Our Your Their A An In On At As For But And
    So If When While What Who Why How Where Which Then Now No Not Nobody Everyone Is Are Was Were Did After Before
    El La Los Las Un Una Él Ella Ellos Ellas Yo Tú Usted Ustedes Nosotros Lo Le Les Se Me Te Nos Su Sus Mi Mis Es Son
    Era Fue Está Hay Pero Y Si Sí Cuando Como Qué Quién En Por Para Con Luego Después Entonces Ahora Allí Aquí Este Esta
    Esto Ese Esa Eso Nadie Todo Todos Ya También
""")

Lengths = Callable[[Sequence[str]], list[int]]  # tokens of each string


def split_text(text: str, limit: int, lengths: Lengths) -> list[str]:
    """Cut text at sentence ends; cut a sentence that is too long at clauses, then at spaces, then anywhere.

    Every sentence becomes a segment of its own, since models are trained on sentences; smaller segments are joined
    again as far as the limit allows. Only white space between segments is lost.

    The same rules serve all languages, and the lists of abbreviations are English and Spanish. A sentence ends at
    `.`, `?`, `!` or `…` before white space, and at `。`, `！` or `？`. But it does not end

    - before a small letter (`"Why?" he asked`), unless most sentences of the text begin with small letters;
    - after a title or the like (`Mr.`, `Sra.`, `e.g.`, `p. ej.`);
    - after `No.`, `Fig.`, `pág.` or a month, before a number;
    - after initials, acronyms, `Inc.` or `St.` (`J. R. R. Tolkien`, `U.S.`, `EE. UU.`), unless the next word often
      begins sentences (`The`, `He`, `El`) or follows `¿` or `¡`;
    - after a number or a letter that begins the sentence (`1. Open the door.`).

    So `Plan B. Tom left.` stays whole and `at 10 a.m. Monday` is cut. Abbreviations of other languages are unknown, and
    a line break is no more than a space.

    A segment has at most `limit` tokens, which `lengths` counts; one character may not have more.
    """
    segments = _cut(text, sentence_ends(text))
    for pattern in (_CLAUSE_END, _WHITE_SPACE):
        counts = lengths(segments)
        shorter = [
            [segment] if count <= limit else _join(_cut(segment, _ends(pattern, segment)), limit, lengths)
            for segment, count in zip(segments, counts, strict=True)
        ]
        segments = list(itertools.chain.from_iterable(shorter))
    return [half for segment in segments for half in _halve(segment, limit, lengths)]


def number_words(text: str, segments: Sequence[str]) -> list[int]:
    """Return the number of each segment's first word (from 0, as in `text.split()`), even if only its end is there.

    `split_text` cut the text into the segments; they are in their order, and some may be left out.
    """
    numbers: list[int] = []
    words, is_within_word = 0, False  # words: number of words that begin before `start`
    start = end = 0
    for segment in segments:
        last_start, start = start, text.index(segment, end)
        words += len(text[last_start:start].split()) - is_within_word
        is_within_word = start > 0 and not text[start - 1].isspace() and not segment[0].isspace()
        numbers.append(words - is_within_word)
        end = start + len(segment)
    return numbers


def sentence_ends(text: str) -> list[int]:
    """Return where each sentence ends, after the white space that follows it; the rules are those of `split_text`.

    The end of the text is among them only if white space is there.
    """
    marks = list(_SENTENCE_MARK.finditer(text))
    first_letters = [mark["next"][:1] for mark in marks if not _ends_speech(mark)]
    uses_capitals = sum(map(str.isupper, first_letters)) >= sum(map(str.islower, first_letters))
    ends = [0]
    for mark in marks:
        is_before_small = mark["next"][:1].islower() and (uses_capitals or _ends_speech(mark))
        if mark["marks"] is None or not (is_before_small or _is_within_sentence(text, ends[-1], mark)):
            ends.append(mark.end())
    return ends[1:]


def _ends_speech(mark: re.Match[str]) -> bool:
    """Return whether a quotation or a bracket ends with the mark, or a dash follows: "Why?" he said. ¿Qué? —dijo."""
    return bool(mark["closers"]) or mark["opening"].startswith(("-", "–", "—"))


def _is_within_sentence(text: str, start: int, mark: re.Match[str]) -> bool:
    """Return whether the sentence that begins at start goes on after the mark, even before a capital letter."""
    if mark["opening"].startswith((".", "?", "!", "…")):  # more marks
        return True
    if mark["marks"] != ".":
        return False
    before = text[max(start, mark.start() - _WINDOW) : mark.start()]
    return _is_item_number(before.strip()) or (not mark["closers"] and _is_abbreviation(before, mark))


def _is_item_number(beginning: str) -> bool:
    """Return whether a sentence's beginning up to the first full stop is the number or the letter of a list's item."""
    return (len(beginning) == 1 and beginning.isalpha()) or (len(beginning) <= 3 and beginning.isdigit())


def _is_abbreviation(before: str, mark: re.Match[str]) -> bool:
    """Return whether the full stop after `before` belongs to an abbreviation within a sentence."""
    last_words = _LAST_WORDS.search(before)
    assert last_words is not None
    abbreviation = "".join(last_words[0].split()).lstrip("'’")
    last = abbreviation.rpartition(".")[2]
    names = {abbreviation, last} | {name[0].lower() + name[1:] for name in (abbreviation, last) if len(name) > 1}
    if names & _NEVER_LAST or (names & _BEFORE_NUMBERS and _is_number(mark["next"], last)):
        return True
    if len(last) == len(mark["next"]) == 1 and mark["next"].isupper() and mark["next_stop"]:  # two initials
        return True
    if names & (_BEFORE_NUMBERS | _BEFORE_SMALL_LETTERS):
        return mark["next"][:1].islower()
    return (bool(names & _BEFORE_NAMES) or _is_initial(last)) and not _begins_sentence(mark)


def _is_number(word: str, abbreviation: str) -> bool:
    is_pronoun = word == "I" and len(abbreviation) > 1  # "in Dec. I left", but "s. I a. C."
    return word[:1].isdigit() or (_ROMAN_NUMBER.fullmatch(word) is not None and not is_pronoun)


def _is_initial(word: str) -> bool:
    """Return whether a word is a capital letter, or the same one twice, as in Spanish plurals: EE. UU."""
    return word.isupper() and len(word) <= 2 and len(set(word)) == 1 and word not in ("II", "XX")


def _begins_sentence(mark: re.Match[str]) -> bool:
    """Return whether the words after the mark look like the beginning of a sentence."""
    has_mark = "¿" in mark["opening"] or "¡" in mark["opening"]
    return has_mark or (mark["next"] in _SENTENCE_STARTS and not mark["next_stop"])


def _ends(pattern: re.Pattern[str], text: str) -> list[int]:
    return [match.end() for match in pattern.finditer(text)]


def _cut(text: str, ends: Sequence[int]) -> list[str]:
    """Cut at every end; no segment is empty."""
    segments = (text[start:end].strip() for start, end in itertools.pairwise([0, *ends, len(text)]))
    return [segment for segment in segments if segment]


def _join(segments: list[str], limit: int, lengths: Lengths) -> list[str]:
    """Join neighbouring segments that together fit into limit tokens; a segment that is too long stays alone."""
    groups: list[list[str]] = []
    room = 0
    for segment, count in zip(segments, lengths(segments), strict=True):
        if groups and count <= room:
            groups[-1].append(segment)
            room -= count
        else:
            groups.append([segment])
            room = limit - count
    return [" ".join(group) for group in groups]


def _halve(text: str, limit: int, lengths: Lengths) -> list[str]:
    """Cut in halves until every segment has at most limit tokens."""
    if len(text) < 2 or lengths([text])[0] <= limit:
        return [text]
    middle = len(text) // 2
    return _halve(text[:middle], limit, lengths) + _halve(text[middle:], limit, lengths)
