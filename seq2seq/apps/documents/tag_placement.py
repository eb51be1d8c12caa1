"""Places the marks of a text in its translation by the alignment of words. Independent of file formats and the model.

Every word of the translation belongs to the innermost pair of tags around the word that it is aligned with; a word
without an alignment belongs to what encloses both of its neighbours. A word in several pairs is cut at its dashes and
slashes, and where a tag cuts it, as many letters from its nearer end. A pair of tags goes around its longest run of
words. If it has none, it goes around the word at the same relative position, or encloses nothing if another pair has
that word. A tag without text goes before the word that is aligned with the next source word, or after the number or the
word that it follows. Every tag stays within the tags that enclose it. Numbers are aligned with the same numbers.
"""

import bisect
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from seq2seq.apps.documents.marked_text import OBJECT, Kind, Mark, Marked
from seq2seq.text.masks import hide

Alignment = Sequence[tuple[int, int]]  # word of the text, word of its translation, from 0, as in `text.split()`
Span = tuple[int, int]

_LETTER = re.compile(rf"[^\W_]|{OBJECT}")
_WORD = re.compile(r"\S+")
_PART = re.compile(rf"{OBJECT}\d+{OBJECT}|[^{OBJECT}]+")
_SHORT_PART = re.compile(rf"{OBJECT}\d+{OBJECT}|[-/|·•+→–—]+|[^{OBJECT}/|·•+→–—-]+")  # of a word in several nodes
_NO_DIGIT = re.compile(rf"[^\d{OBJECT}]+")
_CORE = re.compile(r"[\"'“«‘(\[¿¡]*(.+?)[.,;:!?…\"'”»’)\]]*", re.DOTALL)  # a word between its punctuation


@dataclass(eq=False)
class _Node:
    """A pair of tags, a tag that stands alone, or a tag without a partner, which reaches to an end of the text."""

    start: int  # characters of the source
    end: int
    parent: "_Node | None" = None
    open: Mark | None = None
    close: Mark | None = None
    is_point: bool = False
    depth: int = 0
    children: list["_Node"] = field(default_factory=list)
    run: Span = (0, 0)  # parts of the translation
    bounds: Span = (0, 0)  # characters of the translation

    def __post_init__(self) -> None:
        if self.parent is not None:
            self.depth = self.parent.depth + 1
            self.parent.children.append(self)

    def outer(self) -> "_Node":
        """Return the node around this one, which must not be the root."""
        assert self.parent is not None
        return self.parent


def place(source: Marked, translation: str, alignment: Alignment | None) -> Marked:
    """Return a translation with the marks of its source, each mark once, nested as in the source.

    Without an alignment, words correspond by their relative position.
    """
    if not source.marks or translation == source.text:
        return Marked(translation, source.marks)
    nodes, innermost = _parse(source)
    placing = _Placing(source.text, translation, nodes[0], innermost, alignment)
    for node in nodes:
        placing.place_children(node)
    return Marked(translation, tuple(_list_marks(nodes[0])))


def _find_words(text: str) -> tuple[list[Span], list[int]]:
    """Return where words begin and end, and the number of the word that has each part of `text.split()`.

    Spaces separate words, but not within a kept string.
    """
    words = [match.span() for match in _WORD.finditer(hide(text, OBJECT))]
    return words, [number for number, (start, end) in enumerate(words) for _ in text[start:end].split()]


def _parse(source: Marked) -> tuple[list[_Node], list[_Node]]:
    """Pair the marks like brackets; return all nodes, in the order in which they begin, and each character's node."""
    length, num_open, num_stray = len(source.text), 0, 0
    for mark in source.marks:
        num_stray += mark.kind is Kind.CLOSE and not num_open
        num_open = max(num_open + {Kind.OPEN: 1, Kind.CLOSE: -1, Kind.POINT: 0}[mark.kind], 0)
    nodes = [_Node(0, length)]
    for _ in range(num_stray):  # tags that only close
        nodes.append(_Node(0, length, nodes[-1]))
    node, innermost = nodes[-1], list[_Node]()
    for mark in source.marks:
        innermost += [node] * (mark.position - len(innermost))
        if mark.kind is Kind.CLOSE:
            node.close, node.end = mark, mark.position
            node = node.outer()
        else:
            is_point = mark.kind is Kind.POINT
            nodes.append(_Node(mark.position, mark.position if is_point else length, node, mark, is_point=is_point))
            node = node if is_point else nodes[-1]
    return nodes, innermost + [node] * (length - len(innermost))


def _list_marks(root: _Node) -> Iterator[Mark]:
    position, stack = 0, [(root, True)]
    while stack:
        node, is_beginning = stack.pop()
        mark = node.open if is_beginning else node.close
        if mark is not None:
            position = max(position, node.bounds[0 if is_beginning else 1])
            yield Mark(position, mark.kind, mark.number)
        if is_beginning:
            stack.append((node, False))
            stack += [(child, True) for child in reversed(node.children)]


def _common(node: _Node, other: _Node) -> _Node:
    """Return the innermost node that encloses two nodes or is one of them."""
    while node is not other:
        if node.depth < other.depth:
            node, other = other, node
        node = node.outer()
    return node


class _Placing:
    """The words of a text and the parts of its translation: words, cut at the objects that they hold."""

    def __init__(
        self, source: str, translation: str, root: _Node, innermost: list[_Node], alignment: Alignment | None
    ) -> None:
        self.source, self.translation = source, translation
        (words, numbers), (translated, translated_numbers) = _find_words(source), _find_words(translation)
        letters = [_LETTER.search(source, *word) for word in words]  # the first ones
        self.anchors = [letter.start() if letter else word[0] for letter, word in zip(letters, words, strict=True)]
        origins = {
            translated_numbers[word]: numbers[origin]
            for origin, word in alignment or ()
            if origin < len(numbers) and word < len(translated_numbers)
        }
        if not origins and words:
            origins = {word: (2 * word + 1) * len(words) // (2 * len(translated)) for word in range(len(translated))}
        by_digits: dict[str, list[int]] = {}  # words of the source, the last first
        for word in reversed(range(len(words))):
            by_digits.setdefault(_NO_DIGIT.sub("", source[slice(*words[word])]), []).append(word)
        for word, span in enumerate(translated):
            digits = _NO_DIGIT.sub("", translation[slice(*span)])
            if digits and by_digits.get(digits):
                origins[word] = by_digits[digits].pop()
        objects = {part[0]: innermost[part.start()] for part in _PART.finditer(source) if part[0][0] == OBJECT}
        patterns = [_PART if len({*innermost[slice(*word)]}) == 1 else _SHORT_PART for word in words]
        by_length = sorted(origins, key=lambda word: (len(translation[slice(*translated[word])]), -word))
        longest = {origins[word]: word for word in by_length}  # of the translations of a word, which a tag may cut
        source_parts = [list(pattern.finditer(source, *word)) for pattern, word in zip(patterns, words, strict=True)]
        self.parts: list[Span] = []
        self.aligned: list[list[int]] = [[] for _ in words]  # parts of the translation for each source word
        owners, used = list[_Node | None](), Counter[int]()  # used: parts of the source
        for word, span in enumerate(translated):
            origin = origins.get(word)
            for part in (_PART if origin is None else patterns[origin]).finditer(translation, *span):
                cut: dict[Span, _Node | None] = {part.span(): objects.get(part[0])}
                if origin is not None:
                    origin_part = source_parts[origin][min(used[origin], len(source_parts[origin]) - 1)]
                    if part[0] not in objects:
                        cut = self._cut(part.span(), origin_part.span(), innermost, is_longest=longest[origin] == word)
                    self.aligned[origin] += range(len(self.parts), len(self.parts) + len(cut))
                    used[origin] += 1
                owners += cut.values()
                self.parts += cut
        root.run, root.bounds = (0, len(self.parts)), (0, len(translation))
        self.owners = _find_runs(owners, root)

    def _cut(self, part: Span, origin: Span, innermost: list[_Node], *, is_longest: bool) -> dict[Span, _Node | None]:
        """Cut the longest translation of a word as tags cut the word: cat<b>s</b> → gato<b>s</b>."""
        letters = [letter.start() for letter in _LETTER.finditer(self.source, *origin)] or [origin[0]]
        written = [letter.start() for letter in _LETTER.finditer(self.translation, *part)] or [part[0]]
        owners = [innermost[letter] for letter in letters]
        cuts = [number for number in range(1, len(owners)) if owners[number] is not owners[number - 1]]
        if cuts and not is_longest:
            return {part: None}
        ends = [cut if 2 * cut <= len(letters) else cut - len(letters) + len(written) for cut in cuts]
        if any(low >= high for low, high in itertools.pairwise([0, *ends, len(written)])):  # too short
            return {part: max(owners, key=lambda node: node.depth)}
        bounds = [part[0], *(written[end] for end in ends), part[1]]
        return dict(zip(itertools.pairwise(bounds), [owners[cut] for cut in (0, *cuts)], strict=True))

    def place_children(self, node: _Node) -> None:
        """Set the parts of the translation that the children of a node enclose, and sort the children by them."""
        waiting, (low, high) = list(node.children), node.run
        if waiting and waiting[0].open is None:
            first = waiting.pop(0)
            first.run = low, max(low, min(first.run[1], high))
            low = first.run[1]
        if waiting and waiting[-1].close is None and not waiting[-1].is_point:
            last = waiting.pop()
            last.run = max(low, min(last.run[0], high)) if last.run[1] > low else high, high
            high = last.run[0]
        for child in waiting:
            begin, end = max(child.run[0], low), min(child.run[1], high)
            child.run = (begin, end) if begin < end else self._place_between(node, child, low, high)
        node.children.sort(key=lambda child: child.run)
        for child in node.children:
            child.bounds = self._find_bounds(node, child)

    def _place_between(self, node: _Node, child: _Node, low: int, high: int) -> Span:
        """Return parts from low to high for a node that has no aligned word."""
        first, last, start, end = (
            bisect.bisect_left(self.anchors, position) for position in (node.start, node.end, child.start, child.end)
        )
        position = low + (start + end - 2 * first) * (high - low) // max(2 * (last - first), 1)  # the relative position
        position = min(max(position, low), high)
        if start < end:
            for part in (position, position - 1, position + 1):
                if low <= part < high and self.owners[part] is node:
                    self.owners[part] = child
                    return part, part + 1
        elif start <= first:
            position = low
        elif start >= last:
            position = high
        else:
            after, ahead = self.aligned[start], self.aligned[start - 1]
            later, earlier = bisect.bisect_left(after, low), bisect.bisect_left(ahead, high) - 1
            is_after = earlier >= 0 and ahead[earlier] >= low
            positions = self.anchors[start - 1], child.start - 1, child.end
            number, before, behind = (self.source[i : i + 1] for i in positions)
            is_note = number.isdigit() or (before.strip() and not behind.isalnum())
            if later < len(after) and after[later] < high and not (is_after and is_note):
                position = after[later]
            elif is_after:
                position = ahead[earlier] + 1
        return position, position

    def _find_bounds(self, node: _Node, child: _Node) -> Span:
        """Return the characters that a child encloses in its node; punctuation stays in or out as in the source."""
        (first, last), (low, high) = child.run, node.bounds
        before = self.source[max(child.start - 1, 0) : child.start].strip()
        after = self.source[child.end : child.end + 1].strip()
        if first < last:
            inner = self.source[child.start : child.end].strip()
            ends = not inner[-1].isalnum()
            begins = not inner[0].isalnum() or (ends and (not before or before.isalnum()))  # English has no ¿ and ¡
            start = self.parts[first][0] if begins else self._core(first)[0]
            end = self.parts[last - 1][1] if ends else self._core(last - 1)[1]
        elif child.is_point and before and first and after and not after.isalnum():  # between a word and its full stop
            start = end = self._core(first - 1)[1]
        elif first < len(self.parts) and (first == node.run[0] or after or not before):
            start = end = self.parts[first][0]
        else:  # right after a word, or at the end
            start = end = self.parts[first - 1][1] if before and first else high
        start = low if child.open is None else min(max(start, low), high)
        end = high if child.close is None and not child.is_point else min(max(end, start), high)
        return start, max(start, end)

    def _core(self, part: int) -> Span:
        """Return where a part of the translation begins and ends without its punctuation."""
        core = _CORE.fullmatch(self.translation, *self.parts[part])
        if core is None or "&" in core[0]:  # the end of an entity is no punctuation
            return self.parts[part]
        return core.span(1)


def _find_runs(owners: Sequence[_Node | None], root: _Node) -> list[_Node]:
    """Set each node's longest run of parts that belong to the node or to a node in it; return each part's owner.

    A part without an owner gets the innermost node that encloses both neighbours.
    """
    filled, begins, node = list[_Node](), dict[_Node, int](), root
    for part, following in enumerate([*owners, root]):
        if following is None:
            continue
        shared, inner, end = _common(node, following), following, len(filled)
        while node is not shared:
            node.run = max(node.run, (begins[node], end), key=lambda run: run[1] - run[0])
            node = node.outer()
        while inner is not shared:
            begins[inner] = part
            inner = inner.outer()
        filled += [shared] * (part - end) + [following]
        node = following
    return filled[:-1]
