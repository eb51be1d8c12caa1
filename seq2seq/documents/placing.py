"""Places the marks of a text into its translation by which words are aligned; knows no file format and no model.

A pair of tags goes around the words that are aligned with the words it encloses: around the longest run of them, since
a pair cannot enclose words that are apart. A pair whose words have no aligned word goes around the word at the same
relative position if that is in no other tag, or encloses nothing. A tag without text goes before the word that is
aligned with the next word. Every tag stays within the tags that enclose it.
"""

import bisect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from seq2seq.documents.aligning import LETTER, Alignment, Parts, Span, align_parts
from seq2seq.documents.marked import Kind, Mark, Marked

_MAX_DEPTH = 16  # what is nested deeper encloses what the tag around it does; keeps the time linear in the words
_BEFORE = re.compile(r"[\"'“«‘(\[¿¡]*")  # punctuation that a word begins with
_AFTER = ".,;:!?…\"'”»’)]"  # and ends with


@dataclass(eq=False)
class _Node:
    """A pair of tags, a tag without a partner, which reaches to that end of the text, or a tag that stands alone."""

    span: Span  # characters of the source
    open: Mark | None = None
    close: Mark | None = None
    is_point: bool = False
    children: list["_Node"] = field(default_factory=list)
    parent: "_Node | None" = None
    depth: int = 0
    number: int = 0  # in the order in which nodes begin
    end: int = 0  # number after that of the last node within
    words: Span = (0, 0)  # of the source
    place: Span = (0, 0)  # words of the translation
    bounds: Span = (0, 0)  # characters of the translation


def place(source: Marked, translation: str, alignment: Alignment | None) -> Marked:
    """Give a translation the marks of its source, each of them once and nested as they were.

    alignment is of words as `find_words` finds them; where it is None or empty, words correspond by their position.
    """
    if not source.marks or translation == source.text:
        return Marked(translation, source.marks)
    root = _parse(source)
    placing = _Placing(source.text, translation, _number(root), alignment)
    for node in placing.nodes:
        if node.children:
            placing.place_children(node)
    return Marked(translation, tuple(_list_marks(root)))


def _parse(source: Marked) -> _Node:
    """Pair the marks like brackets; what one without a partner encloses reaches to the beginning or the end."""
    length = len(source.text)
    root = _Node((0, length))
    stack = [root]
    for mark in source.marks:
        if mark.kind is Kind.CLOSE and len(stack) == 1:
            root.children = [_Node((0, mark.position), close=mark, children=root.children)]
        elif mark.kind is Kind.CLOSE:
            node = stack.pop()
            node.close, node.span = mark, (node.span[0], mark.position)
        else:
            is_point = mark.kind is Kind.POINT
            node = _Node((mark.position, mark.position if is_point else length), open=mark, is_point=is_point)
            stack[-1].children.append(node)
            stack += [] if is_point else [node]
    return root


def _walk(root: _Node) -> Iterator[tuple[_Node, bool]]:
    """Yield every node twice: with True before what is within it, with False after that."""
    stack = [(root, True)]
    while stack:
        node, is_beginning = stack.pop()
        yield node, is_beginning
        if is_beginning:
            stack.append((node, False))
            stack += [(child, True) for child in reversed(node.children)]


def _number(root: _Node) -> list[_Node]:
    """Number all nodes; gives them in that order."""
    nodes: list[_Node] = []
    path: list[_Node] = []
    for node, is_beginning in _walk(root):
        if is_beginning:
            node.parent, node.depth, node.number = path[-1] if path else None, len(path), len(nodes)
            nodes.append(node)
            path.append(node)
        else:
            path.pop()
            node.end = len(nodes)
    return nodes


def _list_marks(root: _Node) -> Iterator[Mark]:
    position = 0
    for node, is_beginning in _walk(root):
        mark = node.open if is_beginning else node.close
        if mark is not None:
            position = max(position, node.bounds[0 if is_beginning else 1])
            yield Mark(position, mark.kind, mark.number)


class _Placing:
    """The words of a text and of its translation, and to which node each of them belongs."""

    def __init__(self, source: str, translation: str, nodes: list[_Node], alignment: Alignment | None) -> None:
        self.nodes, self.source, self.translation = nodes, source, translation
        src, tgt = Parts(source), Parts(translation)
        self.src, self.tgt = src.spans, tgt.spans
        self.starts = [start for start, _ in self.src]
        owners = self._find_owners()
        root, size = nodes[0], len(self.tgt)
        root.place, root.bounds = (0, size), (0, len(translation))
        self.aligned: list[list[int]] = [[] for _ in self.src]  # words of the translation by those of the source
        self.owners: list[int | None] = [None] * size  # numbers of the nodes that words of the translation belong to
        for one, other in align_parts(src, tgt, alignment):
            self.aligned[one].append(other)
            self.owners[other] = owners[one].number

    def _find_owners(self) -> list[_Node]:
        """Find the innermost node of every source word, and the words of every node.

        A word belongs to what encloses its first letter, or to what encloses no other word but letters of this one.
        """
        letters = [match.start() for match in LETTER.finditer(self.source)]
        anchors = []
        for start, end in self.src:
            index = bisect.bisect_left(letters, start)
            anchors.append(letters[index] if index < len(letters) and letters[index] < end else start)
        events = [
            (node.span[0], node) if is_first else (node.span[1], node.parent) for node, is_first in _walk(self.nodes[0])
        ]
        owners, current, index = [], self.nodes[0], 0
        for anchor in anchors:
            while index < len(events) and events[index][0] <= anchor:
                current = events[index][1] or current
                index += 1
            owners.append(current)
        for node in reversed(self.nodes):
            start, end = node.span
            node.words = bisect.bisect_left(anchors, start), bisect.bisect_left(anchors, end)
            index = bisect.bisect_left(letters, start)
            if node.words[0] == node.words[1] and index < len(letters) and letters[index] < end:
                word = bisect.bisect_right(self.starts, letters[index]) - 1
                if owners[word].number <= node.number < owners[word].end:
                    owners[word] = node
                if node.number <= owners[word].number < node.end:
                    node.words = word, word + 1
        return owners

    def place_children(self, node: _Node) -> None:
        """Find the places of all that a placed node encloses, and put them into the order that they have there."""
        (low, high), children = node.place, node.children
        if node.depth >= _MAX_DEPTH:
            widest = next((child for child in children if not child.is_point), None)
            for child in children:
                is_before = widest is None or child.number <= widest.number
                child.place = low if is_before else high, high if child is widest or not is_before else low
        else:
            self._place_by_words(node, low, high)
        children.sort(key=lambda child: (child.place, child.number))
        for child in children:
            child.bounds = self._find_bounds(node, child)

    def _place_by_words(self, node: _Node, low: int, high: int) -> None:
        numbers = [child.number for child in node.children]

        def child_of(word: int) -> _Node | None:
            owner = self.owners[word]
            index = -1 if owner is None else bisect.bisect_right(numbers, owner) - 1
            return (
                node.children[index] if index >= 0 and owner is not None and owner < node.children[index].end else None
            )

        belongs = {word: child_of(word) for word in range(low, high)}
        waiting = list(node.children)
        if waiting[0].open is None:
            first = waiting.pop(0)
            end = low + _best_cuts([belongs[word] is first for word in range(low, high)])[-1]
            first.place, low = (low, end), end
        if waiting and waiting[-1].close is None and not waiting[-1].is_point:
            last = waiting.pop()
            start = low + _best_cuts([belongs[word] is not last for word in range(low, high)])[0]
            last.place, high = (start, high), start
        aligned = (word for word in range(low, high) if self.owners[word] is not None)
        runs = _longest_runs((word, belongs[word]) for word in aligned)
        taken: dict[int, Span] = {}
        for child in waiting:
            if child in runs:
                child.place = runs[child]
                taken |= dict.fromkeys(range(*child.place), child.place)
        for child in waiting:
            if child not in runs:
                child.place = self._place_between(node, child, low, high, taken)
                taken |= dict.fromkeys(range(*child.place), child.place)

    def _place_between(self, node: _Node, child: _Node, low: int, high: int, taken: dict[int, Span]) -> Span:
        """Find a place from low to high for a node that has no aligned word."""
        (first, last), (start, end) = node.words, child.words
        place = low + (start + end - 2 * first) * (high - low) // max(2 * (last - first), 1)  # the relative position
        place = min(max(place, low), high)
        if start < end:
            for word in (place, place - 1, place + 1):
                if low <= word < high and word not in taken:
                    return word, word + 1
        elif start <= first:
            place = low
        elif start >= last:
            place = high
        else:
            after, before = self.aligned[start], self.aligned[start - 1]
            later, earlier = bisect.bisect_left(after, low), bisect.bisect_left(before, high) - 1
            if later < len(after) and after[later] < high:
                place = after[later]
            elif earlier >= 0 and before[earlier] >= low:
                place = before[earlier] + 1
        if place in taken and taken[place] is taken.get(place - 1):
            place = taken[place][0]
        return place, place

    def _find_bounds(self, node: _Node, child: _Node) -> Span:
        """Turn a place into characters within those of the node around; punctuation stays within as in the source."""
        (first, last), (low, high) = child.place, node.bounds
        if first < last:
            keeps_before, keeps_after = self._keeps_punctuation(child.span)
            start = self.tgt[first][0] if keeps_before else self._core(first)[0]
            end = self.tgt[last - 1][1] if keeps_after else self._core(last - 1)[1]
        else:
            before = self.source[max(child.span[0] - 1, 0) : child.span[0]].strip()
            after = self.source[child.span[1] : child.span[1] + 1].strip()
            if first < len(self.tgt) and (first == node.place[0] or after or not before):
                start = end = self.tgt[first][0]
            else:  # right behind a word, or at the end
                start = end = self.tgt[first - 1][1] if before and first else high
        start = low if child.open is None else min(max(start, low), high)
        end = high if child.close is None and not child.is_point else min(max(end, start), high)
        return start, max(start, end)

    def _keeps_punctuation(self, span: Span) -> tuple[bool, bool]:
        """Tell whether punctuation before and after the words that a node encloses stands within the node."""
        start, end = span
        text, index = self.source, bisect.bisect_right(self.starts, start) - 1
        if index < 0 or self.src[index][1] <= start:
            start = self.src[index + 1][0] if index + 1 < len(self.src) else start
        index = bisect.bisect_left(self.starts, end) - 1
        end = min(end, self.src[index][1]) if index >= 0 else end
        if start >= end:
            return False, False
        begins, ends = not text[start].isalnum(), not text[end - 1].isalnum()
        before = text[span[0] - 1] if span[0] else " "
        return begins or (ends and (before.isspace() or before.isalnum())), ends  # as ¿ and ¡, which English lacks

    def _core(self, word: int) -> Span:
        """Find where a word of the translation begins and ends without its punctuation."""
        start, end = self.tgt[word]
        text = self.translation[start:end]
        core = text.rstrip(_AFTER)
        before = _BEFORE.match(core)
        if "&" in text or before is None or before.end() == len(core):  # the end of an entity is no punctuation
            return start, end
        return start + before.end(), start + len(core)


def _best_cuts(flags: list[bool]) -> list[int]:
    """Find the cuts with the fewest False before and True after them."""
    costs = [sum(flags)]
    for flag in flags:
        costs.append(costs[-1] + (-1 if flag else 1))
    least = min(costs)
    return [cut for cut, cost in enumerate(costs) if cost == least]


def _longest_runs(belonging: Iterable[tuple[int, _Node | None]]) -> dict[_Node, Span]:
    """Find for every node the run with most words of its own; an aligned word of no node in it counts against it.

    A run ends where a word of another node stands. belonging is of the aligned words.
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
