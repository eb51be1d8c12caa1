"""Unusual forms of training pairs, on both sides where both must agree; reads no files.

Corpora have clean sentences, but users write capitals, fragments, code, emoji and typing errors. OpusTrainer (Bogoychev
et al. 2023) changes pairs on the fly for this reason.
"""

import random
import re
import unicodedata
from collections.abc import Callable, Container
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from seq2seq.data.formats import Pair
from seq2seq.settings.checks import MODIFIERS, part_of
from seq2seq.settings.training import ModifiersConfig
from seq2seq.text.normalise import normalise
from seq2seq.text.vocabulary import Tokenizers


class Language(NamedTuple):
    """What modifiers know about a language; a language that LANGUAGES does not list has the defaults."""

    quotes: tuple[str, ...] = ("“”", "«»", "‘’", "„“")  # usual quotation marks, each an opening and a closing one
    months: str = ""  # their names
    dates: tuple[str, ...] = ()  # the same kinds of dates in all languages, each after a preposition; (): no dates
    has_usual_capitals: bool = True  # those of Unicode's general rules


LANGUAGES = {
    "en": Language(
        ("“”", "‘’"), "January February March April May June July August September October November December",
        ("on {month} {day}, {year}", "on {day} {month} {year}", "on {month} {day}", "in {month} {year}")),
    "es": Language(
        ("«»", "“”"), "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        (*("el {day} de {month} de {year}",) * 2, "el {day} de {month}", "en {month} de {year}")),
    **dict.fromkeys(("tr", "az", "lt"), Language(has_usual_capitals=False)),
}  # fmt: skip
_FIRST_LETTER = re.compile(r"(?<!\S)([\"'“‘«(\[¿¡]*)(\w)")
_CODE_PART = re.compile(  # markup, code and addresses, whose letters stay as they are
    r"(<[^<>]*>|\{[^{}]*\}|`[^`]*`"
    r"|(?<!\S)\S*(?:[@\\_=]|://|[%$&#]\w|\w\.\w{2}|\w{2}\.\w|\(\)|/\S*/)\S*|(?<!\S)(?:--?|[/~])\w\S*)"
)
_STOP = re.compile(r"(?<=[^\W\d_]{2})[.。।]$")  # not of an ellipsis, nor of p.m.
_NUMBER = re.compile(r"(?<![\w%{<&#$\\])\d+(?![\w}>]|\$\w)")  # not of an identifier or a placeholder
# where a part can be inserted, if both sides have equally many such points
_START, _END, _AFTER_COMMA = re.compile("^"), re.compile("$"), re.compile("(?<=,)(?= )")
_BEFORE_MARK = re.compile(r"(?<![.!?…\s\"'”’»])(?<!\.\w)(?=[.!?…]+[\"'”’»)]*$)")
_BETWEEN_SENTENCES = re.compile(r"(?<=\w\w[.!?…])(?= [^a-z])")
# Lists by name, an item of each line being as likely as one of another. In templates, § is an identifier, ¤ a word, ¢ a
# word with a capital, ¶ a digit, ␣ a space. Names have no gender, with which other words would have to agree.
_TABLE = r"""
syllable ba be bi bo ca ce co da de di do fa fe fi fo ga go ha he hi jo ka ki la le li lo lu ma me mi mo mu na ne ni no
syllable nu pa pe pi po ra re ri ro ru sa se si so su ta te ti to tu va ve vi vo wa wi za zo kel mar tin son ler ski ton
name ¢ ¢␣¢
name Smith Johnson García Fernández Müller Schröder Rossi Nguyen Patel Kowalski Novák Håkansson Jørgensen Yılmaz
name Popescu Žižek O'Brien Okafor Mbeki Haddad Kim Chen Suzuki Ivanov Horvat Dubois Lefèvre Silva Araújo Papadakis
code %s %d %i %u %x %f %.2f %5d %02d %-10s %lu %ld %% %@ %¶$s %¶$d %¶$@
code %(§)s %(§)d {§} {¶} {} {§:.2f} {§!r} {§.§} {{§}} {{␣§␣}} {{{§}}} {{§|date}} {$INTERPOLATION} {$START_LINK}
code ${§} $§ $(§) $¶ #{§} @{§} %§% %{§}
code %¶ %n %L¶ %#@§@ {§,␣number} {§,␣plural,␣one␣{#␣¤}␣other␣{#␣¤}} {§,␣select,␣other␣{¤}}
code <§> </§> <§/> <br> <¶/> <b>¤</b> <¶>¤</¶> <a␣href="§">¤</a> <code>§</code> [b]¤[/b] [§] &nbsp; &§;
code `§` `§.§` `--§` `§␣-¶` `§()` §() §.§() §(§) §::§ §->§ §[¶] ¢::§()
code https://¤.org/§ http://www.¤.com https://¤.¤.io/§/§?§=¶¶ www.¤.net ¤.com §@¤.org ¤.¤@¤.com §+§@¤.net
code §.txt §.py §.html §.pdf §-¶.jpg *.§ /§/§ /etc/§.conf ~/§ ../§/§.c C:\¢\§.exe §/§.js
code --§ --§-§ --§=¶ -¤ @§ #¤ #¢¢ :¤: u/§ @¤_¶¶
code Ctrl+C Ctrl+Alt+Del Ctrl+Shift+N Alt+F¶ Shift+F1¶ F1¶ ⌘K Ctrl-¶ Alt+Tab
code v¶.¶ ¶.¶.¶ ¶.¶¶.¶ ¶.¶-rc¶ v¶.¶.¶-beta 0x¶¶ #¶¶¶¶¶¶ CVE-20¶¶-¶¶¶¶ ISO-¶¶¶¶
code §_§ ¤_¤_¤ ¢¢ ¤¢ ¢¢¢ §-§ §§¶
number ¶ ¶¶ ¶0 ¶¶¶ ¶00 ¶¶¶¶ ¶¶¶¶¶ 19¶¶ 20¶¶ 1:¶0 1¶:4¶ 1¶:0¶ 1¶/¶/19¶¶ ¶/1¶/20¶¶ ¶.¶ ¶¶.¶ 0.0¶ ¶.¶¶¶ ¶,¶¶¶ ¶¶,000
number ¶¶% ¶0␣% ¶¶␣€ $¶¶ €¶¶ £¶¶0 $¶,¶¶¶.¶¶ €¶,¶¶¶.¶¶ ¶¶,¶¶¶.¶ -¶ +¶ #¶¶ ¶¶␣km ¶¶␣kg ¶¶°C ¶–¶¶ ¶¶¶-¶¶¶¶ +¶¶␣¶¶¶␣¶¶¶␣¶¶¶
emoji ❤️ ☀️ ☎️ ✈️ ✔️ ⚠️ ✅ ✨ ⭐ 👩‍🚀 👨‍💻 👨‍👩‍👧 🏳️‍🌈 ❤️‍🔥 1️⃣ 🇪🇸 🇬🇧 🇺🇸 🇲🇽 🇫🇷 🇩🇪 🇯🇵 👋🏻 👌🏼 👍🏽 👎🏾 👏🏿 🙏🏽 :) :-) ;) :D <3
sign → ← ↑ ↓ ⇒ • · ▸ ► ★ ☆ ☐ ☑ ✓ ✔ ✗ © ® ™ § ¶ † ‡ ° ± × ÷ − ≈ ≠ ≤ ≥ ∞ √ ∑ π µ € £ ¥ ₹ ₽ ½ ¼ ² ³ ₂
sign ª º … – — | # & @ * / ♥ ♪ № -> => <- == != ... *** ~
list -␣ •␣ *␣ –␣ +␣ >␣ #␣ ##␣ [␣]␣ [x]␣ ☐␣ a)␣ b)␣ (c)␣ A.␣ i.␣ →␣ ¶.␣ ¶.␣ ¶¶.␣ ¶)␣ ¶.¶.␣
bracket ({}) [{}] {{{}}} **{}** *{}* _{}_ __{}__ ||{}|| “{}” "{}" <b>{}</b> <i>{}</i> <1>{}</1> <p>{}</p> <em>{}</em>
"""
_LISTS: dict[str, list[list[str]]] = {}
for _name_of_list, *_items in map(str.split, _TABLE.strip().splitlines()):
    _LISTS.setdefault(_name_of_list, []).append(_items)
_EMOJI = [range(0x1F600, 0x1F645), range(0x1F400, 0x1F43F), range(0x1F680, 0x1F6C6), range(0x1F330, 0x1F394)]
_LISTS["emoji"] += [[chr(code) for code in codes] for codes in _EMOJI]
_TEMPLATES = ("code", "number", "list", "name")
_LETTERS, _KEYBOARD = "abcdefghijklmnopqrstuvwxyz", "qwertyuiop asdfghjkl zxcvbnm"
_FEW_WORDS = 3  # of a pair that is repeated as a whole
_WORDS_A_TYPO = 10  # a sentence with typing errors has one error, and one more per this many words


class Draw(NamedTuple):
    """What a family draws from: a random generator, another pair, and knowledge about the two languages."""

    rng: random.Random
    other: Pair
    languages: tuple[Language, Language]
    words: tuple[Container[str], Container[str]]  # frequent words of each side, as they are within a sentence

    def take(self, name: str) -> str:
        """Return an item of a list; in templates, marks become random identifiers, words and digits."""
        item = self.rng.choice(self.rng.choice(_LISTS[name]))
        return re.sub("[§¤¢¶␣]", lambda mark: self._fill(mark[0]), item) if name in _TEMPLATES else item

    def _fill(self, mark: str) -> str:
        if mark == "§":
            return "".join(self.rng.choices(_LETTERS, k=self.rng.randint(1, 7)))
        if mark in "¶␣":
            return f"{self.rng.randint(1, 9)}" if mark == "¶" else " "
        word = "".join(self.take("syllable") for _ in range(self.rng.randint(2, 4)))
        return word if mark == "¤" else word.capitalize()


Family = Callable[[Pair, Draw], Pair | None]  # None: this pair has no such form


def _both(change: Callable[[str], str], pair: Pair) -> Pair:
    return change(pair[0]), change(pair[1])


def _insert(pair: Pair, parts: Pair, rng: random.Random, *points: re.Pattern[str]) -> Pair | None:
    """Insert a part on each side, at the same one of the points that both sides have."""
    for point in rng.sample(points, len(points)):
        src, tgt = ([match.start() for match in point.finditer(text)] for text in pair)
        if src and len(src) == len(tgt):
            i, k = rng.choice(list(zip(src, tgt, strict=True)))
            return _put(pair[0], i, parts[0]), _put(pair[1], k, parts[1])
    return None


def _put(text: str, offset: int, part: str) -> str:
    return f"{text[:offset]} {part}{text[offset:]}" if offset else f"{part} {text}"


def _replace_name(pair: Pair, new: str, draw: Draw) -> Pair | None:
    """Replace a capitalised word that both sides have equally often, and that is no frequent word."""
    src, tgt = (re.findall(r"\w+", text) for text in pair)
    for word in src:
        is_name = len(word) > 2 and word.istitle() and not any(word.lower() in frequent for frequent in draw.words)
        if is_name and src.count(word) == tgt.count(word):
            return _both(partial(re.sub, rf"\b{word}\b", new.replace("\\", r"\\")), pair)
    return None


def _begin_small(pair: Pair, draw: Draw) -> Pair | None:
    """Begin both sides with a small letter; None if a first word may be a name, an abbreviation or the English I."""
    for text, words in zip(pair, draw.words, strict=True):
        first = re.match(rf"{_FIRST_LETTER.pattern}(\w*)", text)
        if first is None or (first[2] != first[2].lower() and first[2].lower() + first[3] not in words):
            return None
    return _both(partial(_FIRST_LETTER.sub, lambda first: first[1] + first[2].lower(), count=1), pair)


def _recase(change: Callable[[str], str], text: str) -> str:
    return "".join(part if i % 2 else change(part) for i, part in enumerate(_CODE_PART.split(text)))


def _capitals(pair: Pair, draw: Draw) -> Pair | None:
    is_usual = all(language.has_usual_capitals for language in draw.languages)
    return _both(partial(_recase, str.upper), pair) if is_usual else None


def _title_case(pair: Pair, draw: Draw) -> Pair | None:
    is_usual = all(language.has_usual_capitals for language in draw.languages)
    src, tgt = _both(partial(_recase, partial(_FIRST_LETTER.sub, lambda first: first[1] + first[2].title())), pair)
    return (src, tgt if draw.rng.random() < 0.3 else pair[1]) if is_usual else None


def _fragments(pair: Pair, draw: Draw) -> Pair | None:
    if all(map(_STOP.search, pair)):
        pair = _both(partial(_STOP.sub, ""), pair)
    return (draw.rng.random() < 0.5 and _begin_small(pair, draw)) or pair


def _joined(pair: Pair, draw: Draw) -> Pair | None:
    is_sentence = all(re.search(r"[.!?…。！？][\"'”’»)]*$", text) for text in pair)
    between = " " if is_sentence else draw.rng.choice((" – ", " — ", " / ", " · ", "; ", ": ", " | "))
    return pair[0] + between + draw.other[0], pair[1] + between + draw.other[1]


def _typography(pair: Pair, draw: Draw) -> Pair | None:
    """Write curly quotes and apostrophes, dashes and ellipses; put a pair without quotes in quotes or after a dash."""
    rng, (source, target) = draw.rng, draw.languages
    dash, quotes = rng.choice((" – ", " — ")), rng.choice(source.quotes)
    styles = quotes, quotes if quotes in target.quotes else target.quotes[0]
    counts = [text.count('"') for text in pair]
    template = "{}" if any(counts) else rng.choice(('"{}"', dash.lstrip() + "{}", "{}"))
    sides: list[str] = []
    for text, style in zip(_both(template.format, pair), styles, strict=True):
        text = re.sub(r"(?<=\w)'(?=\w)", "’", text).replace("...", "…").replace(" - ", dash).replace(" -- ", dash)
        quoted = re.sub(r'(?<!=)"([^"]*)"', rf"{style[0]}\1{style[1]}", text)
        sides.append(quoted if counts[0] == counts[1] else text)
    return sides[0], sides[1]


def _names(pair: Pair, draw: Draw) -> Pair | None:
    name = draw.take("name")
    if (replaced := _replace_name(pair, name, draw)) or not all(map(_BEFORE_MARK.search, pair)):
        return replaced
    if draw.rng.random() < 0.5 and (small := _begin_small(pair, draw)):
        return _both(f"{name}, ".__add__, small)
    return _both(partial(_BEFORE_MARK.sub, f", {name}"), pair)


def _code(pair: Pair, draw: Draw) -> Pair | None:
    part = draw.take("code")
    replaced = _replace_name(pair, part, draw) if draw.rng.random() < 0.5 else None
    points = _START, _END, _BEFORE_MARK, _AFTER_COMMA, _BETWEEN_SENTENCES
    return replaced or _insert(pair, (part, part), draw.rng, *points)


def _symbols(pair: Pair, draw: Draw) -> Pair | None:
    part = draw.take("emoji" if draw.rng.random() < 0.6 else "sign")
    return _insert(pair, (part, part), draw.rng, _START, _END, _BEFORE_MARK, _BETWEEN_SENTENCES)


def _list_marks(pair: Pair, draw: Draw) -> Pair | None:
    return _both(draw.take("list").__add__, pair)


def _brackets(pair: Pair, draw: Draw) -> Pair | None:
    return _both(draw.take("bracket").format, pair)


def _numbers(pair: Pair, draw: Draw) -> Pair | None:
    """Replace the numbers, which both sides must have in common; add a number if there are none."""
    rng, (src, tgt) = draw.rng, (_NUMBER.findall(text) for text in pair)
    if not src and not tgt:
        number = draw.take("number")
        template = rng.choice(("{1} {0}", "{1}: {0}", "{0} ({1})", "{0} {1}"))
        return _both(lambda text: template.format(text, number), pair)
    new = {number: _other_number(number, rng) for number in src}
    return _both(partial(_NUMBER.sub, lambda match: new[match[0]]), pair) if sorted(src) == sorted(tgt) else None


def _other_number(number: str, rng: random.Random) -> str:
    """Return a number of as many digits; hours, days and years stay possible, and 1 stays singular."""
    digits, value = len(number), int(number)
    if number[0] == "0" or value == 1 or digits > 9:
        return number
    highest = {1: 9, 2: max(value, 12), 4: max(value, 2100)}
    return str(rng.randint(max(2, 10 ** (digits - 1)), highest[digits] if digits in highest else 10**digits - 1))


def _dates(pair: Pair, draw: Draw) -> Pair | None:
    rng, languages = draw.rng, draw.languages
    if not all(language.dates for language in languages):
        return None
    kind, month, day, year = rng.randrange(4), rng.randrange(12), rng.randint(1, 28), rng.randint(1900, 2030)
    src, tgt = (
        language.dates[kind].format(month=language.months.split()[month], day=day, year=year) for language in languages
    )
    after = f"{pair[0]} ({src.partition(' ')[2]})", f"{pair[1]} ({tgt.partition(' ')[2]})"
    return _insert(pair, (src, tgt), rng, _BEFORE_MARK) or after


def _typos(pair: Pair, draw: Draw) -> Pair | None:
    """Put typing errors into the source's words, but not into code and words that the target has, such as names."""
    words, shared = pair[0].split(" "), set(re.findall(r"\w+", pair[1]))
    errors = 1 + len(words) // _WORDS_A_TYPO
    for i in draw.rng.sample(range(len(words)), len(words)):
        is_usual = not _CODE_PART.search(words[i]) and shared.isdisjoint(re.findall(r"\w+", words[i]))
        if errors and is_usual and (mistyped := _mistype(words[i], draw.rng)):
            words[i], errors = mistyped, errors - 1
    return " ".join(words), pair[1]


def _mistype(word: str, rng: random.Random) -> str | None:
    """Swap two letters, hit a neighbouring key, leave a letter out or double it; None in a word of few letters.

    Letters are those that have a case and no combining marks, so that no grapheme cluster is split.
    """
    marks = [bool(unicodedata.combining(after)) for after in f"{word[1:]} "]
    letters = [i for i, letter in enumerate(word) if letter.lower() != letter.upper() and not marks[i]]
    if len(letters) < 3:
        return None
    i, kind = rng.choice(letters), rng.randrange(4)
    if kind == 0 and i + 1 in letters and word[i] != word[i + 1]:
        return word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    if kind == 1 and (key := _KEYBOARD.find(word[i])) >= 0:
        near = _KEYBOARD[max(key - 1, 0) : key + 2].replace(word[i], "").strip()
        return word[:i] + rng.choice(near) + word[i + 1 :]
    return word[:i] + word[i + 1 :] if kind == 2 else word[: i + 1] + word[i:]


def _repeats(pair: Pair, draw: Draw) -> Pair | None:
    """Repeat a word of the source, which is translated once; repeat a pair of few words as a whole, on both sides."""
    words = pair[0].split(" ")
    if all(len(text.split(" ")) <= _FEW_WORDS for text in pair):
        count = draw.rng.choice((2, 3, 4, 6, 8, 12, 20, 30))
        return _both(lambda text: " ".join([text] * count), pair)
    i = draw.rng.randrange(len(words))
    words[i : i + 1] = [words[i]] * draw.rng.randint(3, 8)  # twice may be meant: "very very good"
    return (" ".join(words), pair[1]) if words[i].replace("'", "").isalpha() else None


FAMILIES: dict[str, Family] = {family.__name__[1:]: family for family in (
    _capitals, _title_case, _fragments, _joined, _typography, _names, _code, _symbols, _list_marks, _brackets, _numbers,
    _dates, _typos, _repeats,
)}  # by the names of their weights  # fmt: skip


class Modifiers:
    """Changes pairs by families, which are drawn by their weights."""

    def __init__(self, config: ModifiersConfig, codes: Pair, tokenizers: Tokenizers) -> None:
        """Take the languages' codes, and the tokenizers for their frequent words and their symbols, such as <bt>."""
        src, tgt = (LANGUAGES.get(code.partition("-")[0], Language()) for code in codes)
        self._languages, self._words = (src, tgt), (tokenizers.source.words, tokenizers.target.words)
        self._symbols = tokenizers.source.user_symbols
        weights = {name: getattr(config, name) for name in FAMILIES} | config.own
        self._families = [FAMILIES.get(name) or part_of(MODIFIERS, name) for name in weights]
        self._sums = list(accumulate(weights.values()))

    def modify(self, pair: Pair, other: Pair, rng: random.Random) -> Pair:
        """Return the pair in an unusual form, or the pair itself if the drawn family has none for it.

        Symbols at the beginning stay there. A pair with symbols elsewhere stays as it is.
        """
        (src_tags, src), (tgt_tags, tgt), (_, other_src), (_, other_tgt) = map(self._split, (*pair, *other))
        if self._symbols and any(word in self._symbols for word in f"{src} {tgt} {other_src} {other_tgt}".split()):
            return pair
        (family,) = rng.choices(self._families, cum_weights=self._sums)
        changed = family((src, tgt), Draw(rng, (other_src, other_tgt), self._languages, self._words))
        if changed is None or not all(changed):
            return pair
        return normalise(src_tags + changed[0]), normalise(tgt_tags + changed[1])

    def _split(self, text: str) -> Pair:
        """Return the symbols at the beginning of a text, and the rest."""
        words = text.split(" ") if self._symbols else []
        count = next((i for i, word in enumerate(words) if word not in self._symbols), len(words))
        return "".join(f"{word} " for word in words[:count]), text if not count else " ".join(words[count:])
