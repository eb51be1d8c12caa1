"""Places the marks of a text in its translation by the alignment of words. Independent of file formats and the model.

A pair of tags goes around the longest run of words that are aligned with the words that the pair encloses. If these
have no aligned word, the pair goes around the word at the same relative position; if another tag encloses that word,
the pair encloses nothing. A tag without text goes before the word that is aligned with the next source word. Every tag
stays within the tags that enclose it.
"""

import bisect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from seq2seq.documents.marked import OBJECT, Kind, Mark, Marked
from seq2seq.text.masks import hide

Alignment = Sequence[tuple[int, int]]  # word of the text, word of its translation, from 0
Span = tuple[int, int]

_MAX_DEPTH = 16  # deeper tags enclose the same words as the tag around them, so that the time stays linear in words
_LETTER = re.compile(rf"[^\W_]|{OBJECT}")
_WORD = re.compile(r"\S+")
_PART = re.compile(rf"{OBJECT}\d+{OBJECT}|[^{OBJECT}]+")
_BEFORE = re.compile(r"[\"'“«‘(\[¿¡]*")  # punctuation that a word begins with
_AFTER = ".,;:!?…\"'”»’)]"  # punctuation that a word ends with


@dataclass(eq=False)
class _Node:
    """A pair of tags, a tag that stands alone, or a tag without a partner, which reaches to an end of the text."""

    start: int  # characters of the source
    end: int
    depth: int
    open: Mark | None = None
    close: Mark | None = None
    is_point: bool = False
    children: list["_Node"] = field(default_factory=list)
    source_words: Span = (0, 0)
    target_words: Span = (0, 0)
    bounds: Span = (0, 0)  # characters of the translation


def place(source: Marked, translation: str, alignment: Alignment | None) -> Marked:
    """Return a translation with the marks of its source, each mark once, nested as in the source.

    alignment is of the words of `find_words`; without an alignment, words correspond by their relative position.
    """
    if not source.marks or translation == source.text:
        return Marked(translation, source.marks)
    nodes = _parse(source)
    placing = _Placing(source.text, translation, nodes, alignment)
    for node in nodes:
        if node.children:
            placing.place_children(node)
    return Marked(translation, tuple(_list_marks(nodes[0])))


def find_words(text: str) -> list[Span]:
    """Return where words begin and end: spaces separate words, but not within a kept string."""
    return [match.span() for match in _WORD.finditer(hide(text, OBJECT))]


def _parse(source: Marked) -> list[_Node]:
    """Pair the marks like brackets; return the root and all nodes in it, in the order in which they begin."""
    length, num_open, num_stray = len(source.text), 0, 0
    for mark in source.marks:
        num_stray += mark.kind is Kind.CLOSE and not num_open
        num_open = max(num_open + {Kind.OPEN: 1, Kind.CLOSE: -1, Kind.POINT: 0}[mark.kind], 0)
    nodes = [_Node(0, length, depth) for depth in range(num_stray + 1)]  # the root, and tags that only close
    for outer, inner in pairwise(nodes):
        outer.children.append(inner)
    stack = [*nodes]
    for mark in source.marks:
        if mark.kind is Kind.CLOSE:
            node = stack.pop()
            node.close, node.end = mark, mark.position
            continue
        is_point = mark.kind is Kind.POINT
        node = _Node(mark.position, mark.position if is_point else length, len(stack), open=mark, is_point=is_point)
        stack[-1].children.append(node)
        nodes.append(node)
        stack += [] if is_point else [node]
    return nodes


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


class _Parts:
    """The words of a text, cut into parts at the objects that they hold.

    Attributes:
        spans: where the parts begin and end.
        words: for each word, the numbers of its first part, of its first part with a letter, and of its last part.
        objects: numbers of the parts that are objects.
    """

    def __init__(self, text: str) -> None:
        self.spans: list[Span] = []
        self.words: list[tuple[int, int, int]] = []
        for start, end in find_words(text):
            first = len(self.spans)
            self.spans += [match.span() for match in _PART.finditer(text, start, end)]
            numbers = range(first, len(self.spans))
            head = next((part for part in numbers if _LETTER.search(text, *self.spans[part])), first)
            self.words.append((first, head, numbers[-1]))
        self.objects = [part for part, (start, _) in enumerate(self.spans) if text[start] == OBJECT]


def _align_parts(src: _Parts, tgt: _Parts, alignment: Alignment | None) -> list[tuple[int, int]]:
    """Return pairs of parts whose words are aligned, and of every object with itself, sorted by the translation."""
    sizes = len(src.words), len(tgt.words)
    pairs = [pair for pair in alignment or () if pair[0] < sizes[0] and pair[1] < sizes[1]]
    if not pairs and src.words:
        pairs = [((2 * word + 1) * sizes[0] // (2 * sizes[1]), word) for word in range(sizes[1])]
    sources: dict[int, int] = {}
    for word, other in pairs:
        first, head, last = src.words[word]
        other_first, other_head, other_last = tgt.words[other]
        for part in range(other_first, other_last + 1):
            sources[part] = first if part < other_head else head if part == other_head else last
    sources |= zip(tgt.objects, src.objects, strict=False)
    return [(sources[part], part) for part in sorted(sources)]


class _Placing:
    """The words of a text and of its translation, and the node of each word."""

    def __init__(self, source: str, translation: str, nodes: list[_Node], alignment: Alignment | None) -> None:
        self.source, self.translation = source, translation
        src, tgt = _Parts(source), _Parts(translation)
        self.src, self.tgt = src.spans, tgt.spans
        self.starts = [start for start, _ in self.src]
        anchors = self._find_anchors(nodes)
        for node in nodes:
            node.source_words = bisect.bisect_left(anchors, node.start), bisect.bisect_left(anchors, node.end)
        nodes[0].target_words, nodes[0].bounds = (0, len(self.tgt)), (0, len(translation))
        self.aligned: list[list[int]] = [[] for _ in self.src]  # words of the translation for each source word
        self.origins: dict[int, int] = {}  # word of the translation → anchor of its source word
        for word, translated in _align_parts(src, tgt, alignment):
            self.aligned[word].append(translated)
            self.origins[translated] = anchors[word]

    def _find_anchors(self, nodes: list[_Node]) -> list[int]:
        """Return each source word's anchor: the word belongs to the innermost node around this character.

        The anchor is the first letter, or a letter in a node that encloses no other word, such as Bl<b>ack</b>.
        """
        letters = [match.start() for match in _LETTER.finditer(self.source)]
        anchors = []
        for start, end in self.src:
            index = bisect.bisect_left(letters, start)
            anchors.append(letters[index] if index < len(letters) and letters[index] < end else start)
        owners, stack, rest = [], [nodes[0]], nodes[:0:-1]  # the innermost node of every word
        for anchor in anchors:
            while rest and rest[-1].start <= anchor:
                stack.append(rest.pop())
                while stack[-1].end <= anchor and len(stack) > 1:
                    stack.pop()
            while stack[-1].end <= anchor:
                stack.pop()
            owners.append(stack[-1])
        for node in reversed(nodes):
            is_empty = bisect.bisect_left(anchors, node.start) == bisect.bisect_left(anchors, node.end)
            index = bisect.bisect_left(letters, node.start)
            if is_empty and index < len(letters) and letters[index] < node.end:
                word = bisect.bisect_right(self.starts, letters[index]) - 1
                if anchors[word] < node.start and owners[word].end >= node.end:
                    anchors[word], owners[word] = letters[index], node
        return anchors

    def place_children(self, node: _Node) -> None:
        """Set the words of the translation that the children of a node enclose, and sort the children by them."""
        (low, high), children = node.target_words, node.children
        if node.depth >= _MAX_DEPTH:
            widest = next((index for index, child in enumerate(children) if not child.is_point), len(children))
            for index, child in enumerate(children):
                child.target_words = low if index <= widest else high, high if index >= widest else low
        else:
            self._place_by_words(node, low, high)
        children.sort(key=lambda child: child.target_words)
        for child in children:
            child.bounds = self._find_bounds(node, child)

    def _place_by_words(self, node: _Node, low: int, high: int) -> None:
        starts = [child.start for child in node.children]
        belonging: list[tuple[int, _Node | None]] = []  # aligned words, and the child that each belongs to
        for word in range(low, high):
            if word in self.origins:
                index = bisect.bisect_right(starts, self.origins[word]) - 1
                child = node.children[index] if index >= 0 else None
                belonging.append((word, child if child and self.origins[word] < child.end else None))
        runs = _longest_runs(belonging)
        waiting = list(node.children)
        if waiting[0].open is None:
            first = waiting.pop(0)
            first.target_words = low, runs.get(first, (low, low))[1]
            low = first.target_words[1]
        if waiting and waiting[-1].close is None and not waiting[-1].is_point:
            last = waiting.pop()
            last.target_words = max(low, runs.get(last, (high, high))[0]), high
            high = last.target_words[0]
        runs = _longest_runs((word, child) for word, child in belonging if low <= word < high)
        taken: dict[int, Span] = {}
        for child in sorted(waiting, key=lambda child: child not in runs):
            child.target_words = runs[child] if child in runs else self._place_between(node, child, low, high, taken)
            taken |= dict.fromkeys(range(*child.target_words), child.target_words)

    def _place_between(self, node: _Node, child: _Node, low: int, high: int, taken: dict[int, Span]) -> Span:
        """Return words from low to high for a node that has no aligned word."""
        (first, last), (start, end) = node.source_words, child.source_words
        position = low + (start + end - 2 * first) * (high - low) // max(2 * (last - first), 1)  # the relative position
        position = min(max(position, low), high)
        if start < end:
            for word in (position, position - 1, position + 1):
                if low <= word < high and word not in taken:
                    return word, word + 1
        elif start <= first:
            position = low
        elif start >= last:
            position = high
        else:
            after, before = self.aligned[start], self.aligned[start - 1]
            later, earlier = bisect.bisect_left(after, low), bisect.bisect_left(before, high) - 1
            if later < len(after) and after[later] < high:
                position = after[later]
            elif earlier >= 0 and before[earlier] >= low:
                position = before[earlier] + 1
        if position in taken and taken[position] is taken.get(position - 1):
            position = taken[position][0]
        return position, position

    def _find_bounds(self, node: _Node, child: _Node) -> Span:
        """Return the characters that a child encloses in its node; punctuation stays in or out as in the source."""
        (first, last), (low, high) = child.target_words, node.bounds
        if first < last:
            keeps_before, keeps_after = self._keeps_punctuation(child.start, child.end)
            start = self.tgt[first][0] if keeps_before else self._core(first)[0]
            end = self.tgt[last - 1][1] if keeps_after else self._core(last - 1)[1]
        else:
            before = self.source[max(child.start - 1, 0) : child.start].strip()
            after = self.source[child.end : child.end + 1].strip()
            if first < len(self.tgt) and (first == node.target_words[0] or after or not before):
                start = end = self.tgt[first][0]
            else:  # right after a word, or at the end
                start = end = self.tgt[first - 1][1] if before and first else high
        start = low if child.open is None else min(max(start, low), high)
        end = high if child.close is None and not child.is_point else min(max(end, start), high)
        return start, max(start, end)

    def _keeps_punctuation(self, start: int, end: int) -> tuple[bool, bool]:
        """Return whether the span from start to end includes the punctuation before, and after, the words in it."""
        text, before = self.source, self.source[start - 1] if start else " "
        index = bisect.bisect_right(self.starts, start) - 1
        if index < 0 or self.src[index][1] <= start:
            start = self.src[index + 1][0] if index + 1 < len(self.src) else start
        index = bisect.bisect_left(self.starts, end) - 1
        end = min(end, self.src[index][1]) if index >= 0 else end
        if start >= end:
            return False, False
        begins, ends = not text[start].isalnum(), not text[end - 1].isalnum()
        return begins or (ends and (before.isspace() or before.isalnum())), ends  # English has no ¿ and ¡ at the start

    def _core(self, word: int) -> Span:
        """Return where a word of the translation begins and ends without its punctuation."""
        start, end = self.tgt[word]
        text = self.translation[start:end]
        core = text.rstrip(_AFTER)
        before = _BEFORE.match(core)
        if "&" in text or before is None or before.end() == len(core):  # the end of an entity is no punctuation
            return start, end
        return start + before.end(), start + len(core)


def _longest_runs(belonging: Iterable[tuple[int, _Node | None]]) -> dict[_Node, Span]:
    """Return each node's run of aligned words with the most words of the node, minus words of no node.

    A word of another node ends a run.
    """
    best: dict[_Node, tuple[int, Span]] = {}
    previous: _Node | None = None
    begin = weight = 0
    for word, node in belonging:
        if node is None:
            weight -= 1
            continue
        if node is not previous or weight <= 0:
            begin, weight = word, 0
        previous, weight = node, weight + 1
        if node not in best or weight > best[node][0]:
            best[node] = weight, (begin, word + 1)
    return {node: span for node, (_, span) in best.items()}
