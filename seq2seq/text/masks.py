"""Masks: strings that stay the same in a translation, each of which stands in the ids as one symbol ⟨1⟩ … ⟨n⟩.

In training, a string that both sides of a pair have equally often is masked on both. In translation, every such string
of the source is masked, and the symbols of the translation are replaced by their strings again. So these strings are
exact, and the model learns only their positions. Knows no file and no model.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from seq2seq.text.normalise import normalise, one_line

_ENDINGS = (  # of file names
    "txt md rst pdf docx? xlsx? pptx? odt ods csv tsv json jsonl ya?ml toml xml html? css scss js ts tsx jsx py ipynb "
    "rb go rs java class jar cc? cpp hh? hpp cs php sh bash bat ps1 sql db sqlite log cfg conf ini env lock zip gz xz "
    "bz2 tar tgz 7z rar iso img exe dll so deb rpm apk dmg png jpe?g gif svg webp ico mp[34] wav ogg flac avi mkv webm "
    "ttf otf woff2? po pot mo xlf xliff srt vtt tex bib bak tmp"
).replace(" ", "|")
_DOMAINS = (  # top-level domains that are no words: "said.it" and "ok.me" only lack a space
    "com org net edu gov mil int info biz io app dev ai eu uk fr de pt br jp cn ru pl nl ca au ch cz se fi dk mx ar cl"
).replace(" ", "|")
_KEY = "(?:Ctrl|Control|Alt|AltGr|Shift|Cmd|Command|Super|Meta|Win|Option|Fn)"
_OTHER_KEY = r"(?:Del|Delete|Esc|Tab|Enter|Space|Home|End|PgUp|PgDn|F\d{1,2}|[A-Za-z0-9])"
_PICTURES = "\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
_EMOJI = (
    rf"(?:[\U0001f1e6-\U0001f1ff]{{2}}|[#*0-9]\ufe0f?\u20e3|[{_PICTURES}]"
    rf"(?>(?:[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff\u20e3\U000e0020-\U000e007f]|\u200d[{_PICTURES}])*))"
)
OBJECT = "\1"  # before and after the number of markup that is read like a word, such as code; no document contains it
NO_BREAK = r"(?>(?:[\u00a0\u2007\u202f]|&(?:nbsp|numsp|\#0*+(?:160|8199|8239)|\#[xX]0*+(?:[aA]0|2007|202[fF]));)+)"
_NO_SPACE = r"[^\s<>\"“”«»]"
FAMILIES = {  # if several match at a position, the first one takes the string
    "symbol": [  # of the text itself, or of a pair that was masked before; and an object of a document
        r"⟨(?>(?:[^\w\s⟨⟩]*+\d)+)[^\w\s⟨⟩]*+⟩",  # also with invisible characters in it
        r"\x01\d++\x01",
    ],
    "code": [r"(?<![\w`])(?:``(?!`)(?:[^`\n]|`(?!`)){1,200}?``|`[^`\n]{1,200}+`)(?![\w`])"],
    "address": [
        rf"\b(?:https?|s?ftp|ftps|ssh|git|file|s3|gs|magnet|irc|ldap|mailto|tel|data):{_NO_SPACE}*[\w/#=&%~+-]",
        rf"\bwww\.{_NO_SPACE}*[\w/#=&%~+-]",
    ],
    "mail": [r"(?<![\w.+-])[\w.+-]{1,64}+@[\w-]++(?>(?:\.[\w-]++)+)"],  # 64: RFC 5321, and linear time
    "tag": [
        r"</?[A-Za-z][^<>]*+>|<!--(?:(?!<!--)[\s\S])*?-->",
        r"</?\d{1,3}/?>",
        r"&(?:[A-Za-z]\w*+|#\d++|#[xX][0-9A-Fa-f]++);",
    ],
    "placeholder": [
        r"\{\{[^{}\n]{0,60}+\}\}",  # Angular, Jinja, Mustache
        r"[$#%@]?\{(?:[\w.\-:!$, ]{0,40}+|[^{}\s]{0,60}+)\}",  # Python, JavaScript, C#, ICU's arguments, SubRip
        r"\$\([A-Z_][A-Z0-9_]*+\)",  # NSIS, make
        r"\{%[^%\n]{1,80}+%\}",
        r"%\#@\w++@",  # Xcode
        r"%(?:\([\w.]++\)|\d++\$)?[-+0\#]*+(?:\d++|\*)?(?:\.(?:\d++|\*))?(?:hh?|ll?|[jztLq])?[diouxXeEfFgGcsSpaA@]"
        r"(?![A-Za-z])",  # C, Python, Java, Objective-C
        r"%L?n\b|%L?\d{1,2}(?!\d)",  # Qt
        r"%%(?=\W|$)",
        r"\$(?:[a-z_]\w++|[A-Z][A-Z_]++(?!\w))|%[A-Z_]{2,}+%|(?<!\w)__[^\W_]\w*?__(?!\w)|@@\w++@@",
        r"\[\[?[a-z]++(?>(?:[_-][a-z0-9]++)+)\]?\]",
        r"\\[nrt](?!\w)|&&",
    ],
    "number": [rf"(?<!\d)\d{{1,3}}(?>(?:{NO_BREAK}\d{{3}})+)(?!\d)"],
    "file": [
        r"(?<![\w/.])(?:~|\.{1,2})?/(?>(?:[\w.+-]++/)+)(?:[\w.+-]*[\w+-])?",
        r"(?<![\w/.])/(?:etc|usr|var|tmp|home|opt|bin|dev|proc|mnt|srv|root)\b(?:[\w./+-]*\w)?",
        r"\b[A-Za-z]:\\[^\s\"<>|]++",
        rf"(?<![\w.+-])[\w+-]++(?:\.[\w+-]++)*?\.(?:{_ENDINGS})\b(?!\.\w)",
    ],
    "domain": [
        rf"(?<![\w.-])(?:[A-Za-z0-9][A-Za-z0-9-]{{0,62}}+\.)+(?:{_DOMAINS})\b(?:/(?:{_NO_SPACE}*[\w/])?)?(?!['’.-]?\w)"
    ],
    "option": [r"(?<![\w-])--[a-z][a-z0-9]++(?>(?:-[a-z0-9]++)*)(?:=[\w./:-]*\w)?(?![\w-])"],
    "name": [  # in programs
        r"(?<![\w.:>])[A-Za-z_]\w*+(?>(?:(?:\.|::|->)[A-Za-z_]\w*+)*)\(\)",
        r"\b[A-Za-z]\w*?_\w++\b",
        r"\b[a-z]++(?=[A-Z])[a-z0-9]*?(?>(?:[A-Z][a-z0-9]++)+)\b",
        r"\b[A-Za-z_]\w*+(?>(?:::[A-Za-z_]\w*+)+)",
    ],
    "user": [r"(?<![\w/.@])@[A-Za-z_][\w.]*\w"],
    "topic": [r"(?<![\w&/#])#[^\W\d]\w++", r"(?<![\w&/#])#\d++\b"],
    "emoji": [r"(?<![\w:]):[a-z0-9]++(?>(?:_[a-z0-9]++)*):(?![\w:])", rf"(?>(?:{_EMOJI})+)"],
    "keys": [rf"\b{_KEY}(?>(?:\s?\+\s?(?:{_KEY}|{_OTHER_KEY}))+)\b"],
    "version": [r"(?<![\w.])(?:v?\d++(?>(?:\.\d++){2,})(?:[-+][\w.]*\w)?|v\d++(?>(?:\.\d++)+))(?![\w%])"],
    "identifier": [  # A4, COVID-19; not 21ST
        r"(?<![\w-])(?=[A-Z0-9-]*[A-Z])(?=[A-Z0-9-]*\d)(?!\d+(?:ST|ND|RD|TH)\b)[A-Z0-9]++(?>(?:-[A-Z0-9]++)*)(?![\w-])"
    ],
}


def any_of(families: Iterable[str]) -> str:
    """Return the pattern of a string of any of these families."""
    return "|".join("|".join(FAMILIES[family]) for family in families)


_PATTERN = re.compile(f"(?:{any_of(FAMILIES)})+")  # {a}{b} is one string
# What every match has. Most texts have nothing of it, and this pattern is ten times as fast.
_HINT = re.compile(
    rf"[⟨\x01`@<&\u00a0\u2007\u202f{{$%\\_#+/\u20e3{_PICTURES}]"
    r"|\(\)|:[^\s:]|\.\w|--[a-z]|[a-z](?=[A-Z])|[A-Z]-?\d|\d-?[A-Z]|\[[a-z\[]"
)
SYMBOL = re.compile(r"⟨(\d+)⟩")

Span = tuple[int, int]


def hide(text: str, filler: str) -> str:
    """Return a text with each character of its strings replaced by the filler."""
    return _PATTERN.sub(lambda match: filler * len(match[0]), text) if _HINT.search(text) else text


def symbol(number: int) -> str:
    """Return the symbol of a text's string with this number, from 1 on."""
    return f"⟨{number}⟩"


@dataclass(frozen=True)
class Masked:
    """A text with symbols in place of the strings that a translation keeps.

    Attributes:
        text: the text in normal form; ⟨k⟩ stands for the k-th string, and occurs once.
        strings: the strings in the text's order, as the unmasked text has them.
        is_spelt: whether the model, whose vocabulary has no symbols, reads and writes the strings themselves.
    """

    text: str
    strings: tuple[str, ...] = ()
    is_spelt: bool = False

    def in_model(self, text: str) -> str:
        """Return this text, or a translation with its symbols, as the model reads or writes it."""
        return self.restore(text) if self.is_spelt else text

    def from_model(self, translation: str) -> str:
        """Return a translation of the model with symbols."""
        return self.apply(translation) if self.is_spelt else translation

    def restore(self, translation: str) -> str:
        """Return a translation with the strings in place of their symbols; other and repeated symbols are removed."""
        left = set(range(1, len(self.strings) + 1))

        def keep(match: re.Match[str]) -> str:
            number = int(match[1])
            is_kept = number in left
            left.discard(number)
            return match[0] if is_kept else ""

        kept = SYMBOL.sub(keep, translation)
        kept = kept if kept == translation else one_line(kept)
        return SYMBOL.sub(lambda match: self.strings[int(match[1]) - 1], kept)

    def word_number(self, text: str, word: int) -> int:
        """Return the number that a word of the text or of its translation has once the strings are restored."""
        return word + sum(len(self.restore(before).split()) - 1 for before in text.split()[:word] if "⟨" in before)

    def lost(self, translation: str) -> list[str]:
        """Return the numbers of the symbols that a translation lacks."""
        there = {match[1] for match in SYMBOL.finditer(translation)}
        return [number for number in map(str, range(1, len(self.strings) + 1)) if number not in there]

    def apply(self, other: str) -> str:
        """Return another text, such as a given translation, with symbols in place of this text's strings."""
        pattern = "|".join(map(re.escape, sorted(set(self.strings), key=len, reverse=True)))
        spans = [match.span() for match in re.finditer(pattern, other)] if pattern else []
        return _replace(other, spans, self.strings)

    def part(self, text: str, most: int) -> "Masked":
        """Return a part of the text, its strings numbered anew; only its first `most` strings stay masked."""
        strings = list[str]()

        def renumber(match: re.Match[str]) -> str:
            string = self.strings[int(match[1]) - 1]
            if len(strings) == most:
                return string.replace("⟨", "<")  # no symbol of another string
            strings.append(string)
            return symbol(len(strings))

        return replace(self, text=SYMBOL.sub(renumber, text), strings=tuple(strings))


class Masker:
    """Finds the strings that a translation keeps: those of `FAMILIES`, and words that a vocabulary cannot spell."""

    def __init__(
        self, most: int, characters: Iterable[str] | None = None, symbols: Iterable[str] = (), *, is_spelt: bool = False
    ) -> None:
        """Set what is masked.

        Args:
            most: the most strings of a pair.
            characters: the characters of the vocabulary; None: every one.
            symbols: strings that are never masked, such as the tag <bt>.
            is_spelt: whether the model reads the strings themselves; its tokenizer normalises the text.
        """
        self.most, self._symbols, self._is_spelt = most, frozenset(symbols), is_spelt
        self._change = one_line if is_spelt else normalise
        self._unknown, self._words = None, None
        if characters is not None:
            known = {*characters, *"⟨⟩"}
            of_words = filter(re.compile(r"\w").match, known)
            all_known, letters = (re.escape("".join(sorted(each))) for each in (known, of_words))
            word = rf"(?<!\w)[{letters}]*+[^\s{all_known}](?>(?:\w|[^\s{all_known}])*)"
            self._unknown, self._words = re.compile(rf"[^\s{all_known}]"), re.compile(rf"{word}(?>(?:\s+{word})*)")

    def mask(self, text: str) -> Masked:
        """Return a text in normal form with all its strings masked, however many."""
        strings = list[str]()

        def number(match: re.Match[str]) -> str:
            if match[0] in self._symbols:
                return match[0]
            strings.append(match[0])
            return symbol(len(strings))

        masked = self._change(_PATTERN.sub(number, text) if _HINT.search(text) else text)
        if self._words and self._unknown and self._unknown.search(masked):
            parts = re.split(r"(⟨\d+⟩)", masked)
            parts[::2] = [self._words.sub(number, part) for part in parts[::2]]
            masked = "".join(parts)
        return Masked(masked, tuple(strings), self._is_spelt).part(masked, len(strings))

    def mask_pair(self, src: str, tgt: str) -> tuple[str, str]:
        """Return a normalised pair in which strings that both sides have equally often are masked on both sides.

        The strings are numbered in the order of the source. If there are too many, some stay as they are. Symbols that
        the pair already has stay symbols, and may get other numbers.
        """
        spans = self._find(src)
        if not spans:
            return src, tgt
        sides = [(src, spans), (tgt, self._find(tgt))]
        in_src, in_tgt = (Counter(side[start:end] for start, end in side_spans) for side, side_spans in sides)
        shared = [string for string, count in in_src.items() if in_tgt[string] == count]
        chosen, left = set[str](), self.most
        for string in sorted(shared, key=lambda string: not SYMBOL.fullmatch(string)):
            if in_src[string] <= left:
                chosen.add(string)
                left -= in_src[string]
        strings = [string for start, end in spans if (string := src[start:end]) in chosen]
        masked_src, masked_tgt = (_replace(side, side_spans, strings) for side, side_spans in sides)
        return masked_src, masked_tgt

    def _find(self, text: str) -> list[Span]:
        """Return where the strings of a normalised text begin and end, in order."""
        spans = [match.span() for match in _PATTERN.finditer(text)] if _HINT.search(text) else []
        if self._words and self._unknown and self._unknown.search(text):
            gaps = zip([0, *(end for _, end in spans)], [*(start for start, _ in spans), len(text)], strict=True)
            spans = sorted([*spans, *(match.span() for gap in gaps for match in self._words.finditer(text, *gap))])
        return spans


def _replace(text: str, spans: Iterable[Span], strings: Sequence[str]) -> str:
    """Replace those of the spans that are one of the strings by the symbol of this string, each string once."""
    numbers: dict[str, Iterator[int]] = {
        string: iter([number for number, other in enumerate(strings, start=1) if other == string]) for string in strings
    }
    parts, at = list[str](), 0
    for start, end in spans:
        string = text[start:end]
        number = next(numbers[string], None) if string in numbers else None
        parts += [text[at:start], string if number is None else symbol(number)]
        at = end
    return "".join([*parts, text[at:]])
