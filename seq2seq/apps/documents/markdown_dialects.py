"""Parses Markdown's dialects with markdown-it and its plug-ins; a table finds what no plug-in knows.

Before parsing, each string of the table becomes a symbol of two characters, so markdown-it finds no marks, spaces and
line ends in it. Knows nothing of translation.
"""

import re
from collections.abc import Callable
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.helpers import parseLinkLabel
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins import admon, anchors, colon_fence, container, deflist, dollarmath, footnote, front_matter

LINE_END = r"(?:\r\n?|\n)"
SPAN = "span"  # key of a token's `meta`: its start and end in the content of its block
POINT = "\U00100000"  # first character of the symbols of markup that encloses nothing, such as {% if x %}
_FIRST = {"word": 0xF0000, "point": ord(POINT), "line": 0x108000}  # private characters of symbols; a line is a heading
_MOST = 0x7FFF  # symbols of a document
_SYMBOL = "@[\U000f0000-\U0010ffff]"
_EDIT = r"\{(?:\+\+|--|==|~~(?:~>)?)|(?:\+\+|--|==|(?:~>)?~~)\}|~>"  # marks as in {++added++} and {~~old~>new~~}
_EDIT += r"|(?<![\w=])==(?=[^\s=])|(?<=[^\s=])==(?![\w=])"  # ==highlighted==


def _until(end: str) -> str:
    """Return the pattern of at most 500 characters without a blank line, up to an end."""
    return rf"(?:(?!{end}|\r?\n[ \t]*\r?\n)[\s\S]){{0,500}}{end}"


_EDITED = "|".join(rf"{mark}{_until(rf'(?:{{{mark}|{mark}}})')}(?<=}})" for mark in (r"\+\+", "--", "~~"))  # after a {
_BRACES = r"\{[^{}]*+\}"
for _ in range(4):  # more levels of braces in braces
    _BRACES = rf"\{{(?>(?:[^{{}}]++|{_BRACES})*)\}}"
_VALUE = rf"\{{\{{(?![<%]){_until('}}')}+"
_STATEMENT = rf"\{{\{{[<%]{_until('[>%]}}')}|\{{%{_until('%}')}|\{{#\s{_until('#}')}"  # Hugo, Liquid, Jinja
_STATEMENT += rf"|<%{_until('%>')}|<\?{_until('[?]>')}"
_IMAGE = r"\[!\[[^\[\]]*\](?:\([^()]*\)|\[[^\[\]]*\])\](?:\([^()]*\)|\[[^\[\]]*\])"  # within a link
_COMMENT = r"%%(?=[^\s%])" + _until(r"(?<=\S)%%(?![\w%])")  # of Obsidian
_AFTER_BLANK = r"(?<![^\r\n]\n)(?<![^\r\n]\r\n)"
_FORMULA = r"(?=[ \t]*\r?\n|(?:(?![=^{+]|\\[)\]]).){0,200}[=^{+]|\s*\w\s*\\)"  # after \[ or \(, not every one
_SUPERSCRIPT = r"<(?P<{0}>su[bp])>(?:[^<>\s\[\]]{{1,12}}|\[[^\[\]\s]{{1,12}}\]\([^()\s]*\))</(?P={0})>"
_TAG = rf"(?:</?(?:[A-Za-z](?>(?:{_BRACES}|\"[^\"]*+\"|'[^']*+'|[^<>\"'{{}}])*))?>|<!--[\s\S]*?-->)"
_KEY = r"(?:\w|f\d\d?|enter|esc(?:ape)?|tab|space|backspace|del(?:ete)?|insert|home|end|page-(?:up|down)|up|down|left"
_KEY += r"|right|ctrl|alt|shift|cmd|win(?:dows)?|option|meta|caps-lock|print-screen|\"[^\"\n]++\"|'[^'\n]++')"
_KEYS = r"(?:[\w-]++|\"[^\"\n]++\"|'[^'\n]++')"
_KEPT = {
    "code": [  # stays as it is: markdown-it finds it
        r"(?<![^\s>])(?P<fence>`{3,}(?=[^`\n]*$)|~{3,}).*+(?>(?:\n(?![ \t>]*(?P=fence)[`~]*+[ \t\r]*$).*+)*)(?:\n.*+)?",
        r"(?<!`)(?P<ticks>`++)[^`\n]{1,200}+(?P=ticks)(?!`)",
    ],
    "line": [
        rf"(?:(?:{_VALUE}|{_STATEMENT}|{_IMAGE})[ \t]*)+",
        r"\{ *[:#.][^{}\n]*\}|\[(?i:toc)\]|-+8<-+.*|\([\w.:-]+\)=|::: +\w+(?:\.\w+)+",  # attributes, snippets, targets
        r":(?:class|name|open|width|height|align|alt|figclass|figwidth|label|sync|columns|gutter)[\w-]*:.*",  # MyST
        r"\*\[[^\[\]\n]{1,200}\]:",  # an abbreviation, before its text
        r"\\begin\{(?P<environment>[a-z]+\*?)\}" + _until(r"\\end\{(?P=environment)\}"),  # LaTeX
        r"\\\[" + _FORMULA + _until(r"\\\]"),
        rf"%%[^%\n]*\n(?:(?!%%)[\s\S]){{0,2000}}%%|%%.*%%|{_AFTER_BLANK}% .*(?:\n% .*)*",  # comments of Obsidian, MyST
        rf"(?:{_AFTER_BLANK}|(?<=---\n)|(?<=---\r\n))"  # JavaScript up to a blank line
        r"(?:import\s+(?:type\s+)?(?=[\"'{*]|[\w$]+(?:,|\s+from\b))"
        r"|export\s+(?=default\b(?=.*[({=;]|\s*[\w$]+\s*$)|const|let|var|function|class|async|type|\{|\*))"
        rf"(?>(?:{_BRACES}|[^\n{{}}]|\n(?![ \t\r]*(?:\n|\Z)))*)",
        r"(?<!\n)\+\+\+\r?\n[\s\S]*?\n\+\+\+",  # front matter of Hugo
    ],
    "word": [
        r"[\U000f0000-\U0010ffff]",
        r"\{[\w:+.-]+\}(?P<role>`++)[^`\n]{1,200}+(?P=role)",  # MyST
        _VALUE,
        r"!?\[\[[^\[\]\n]{1,200}\]\](?![(\[])",  # a page of a wiki
        rf"(?<![\w>])(?:[A-Za-z]{{1,2}}|[A-Z]*\d+|[A-Z]+)(?>(?:(?:{_SUPERSCRIPT.format('a')}|\^[\w+-]{{1,12}}\^|~\d+~)\w{{0,2}})+)",
        rf"\\\({_FORMULA}[^\n]{{1,200}}?\\\)",
        rf"[$#%@]?(?<![:`])(?<!: )\{{(?![#.:>]|{_EDITED})[^{{}}\s=]{{1,60}}\}}",  # placeholders with Markdown's marks
        r"\$[A-Z][A-Z\d_]++(?![\w$^{\\])",
        r"(?<![\w:]):[+-]?[a-z\d][a-z\d_+-]*+:(?![\w:])",  # icons
        rf"(?<![\w+{{\\])\+\+(?:{_KEY}|{_KEYS}(?>(?:\+{_KEYS})+))\+\+(?![\w+])",
        r"__(?:[a-z\d]++_[a-z\d_]++|all|author|call|class|del|dict|doc|enter|eq|exit|file|future|hash|import|init|iter|len|"
        r"main|module|name|new|next|path|repr|slots|str|version)__(?!\w)",
        r"(?<![\w(<\"'=\]:])https?://[^\s<>()\[\]\"'`]*[*_][^\s<>()\[\]\"'`]*[\w/#=&%~+-]",
        r"<(?P<raw>code|kbd|samp|var|tt|script|style|svg)\b[^<>]*+>[^\n]{0,500}?</(?P=raw)>",
    ],
    "point": [
        *(_STATEMENT, _IMAGE, _COMMENT, rf"\{{>>{_until('<<}')}", r"(?<=[ \t])\^[\w-]+(?=[ \t\r]*$)"),
        r"\{:?[ ]*(?:[#.][A-Za-z_]|[\w:-]+=[\w\"']|=\w)[^{}\n]*+\}",  # attributes
        rf"(?<=[\w).,:;!?]){_SUPERSCRIPT.format('b')}",
    ],
}
_IN_MDX = {"line": [rf"(?>(?:(?:{_TAG}|(?!\{{[ ]*[#.:]){_BRACES})[ \t]*+)+)"], "word": [rf"(?!\{{[ ]*[#.:]){_BRACES}"]}
_WITH_TEXT = (  # directives of MyST
    r"\{(?:note|tip|hint|important|attention|warning|caution|danger|error|figure|seealso|admonition|dropdown|card|tab-set|"
    r"tab-item|grid|grid-item|grid-item-card|margin|sidebar|aside|topic|epigraph|version\w+|deprecated)\}"
)
_CONTAINERS = {":": rf"(?!\{{)\s*\S|{_WITH_TEXT}", "/": r"\s*[^\W\d_]", "`": _WITH_TEXT}  # mark, and what follows it
_OPENING = re.compile(rf"`+\s*{_WITH_TEXT}.*\n")
_TITLES = {
    "admonition_open": re.compile(r'[^"]*"(.*)"'),
    "container_:_open": re.compile(r"\s*+(?:\{(?!figure)[\w-]++\}|[\w-]++)(?:\[(.*)\]\s*+(?:@\S)?\s*+$|\s++(.*))"),
    "container_/_open": re.compile(r"[^|]*\|\s*(.*)"),
}
_TITLES["container_`_open"] = _TITLES["container_:_open"]

Rule = Callable[[StateInline, bool], bool]  # a rule of markdown-it


@cache
def _pattern(*, is_mdx: bool, has_superscripts: bool) -> re.Pattern[str]:
    code, line, word, point = (
        f"(?P<{kind}>{'|'.join([*(_IN_MDX.get(kind, []) if is_mdx else []), *patterns])})"
        for kind, patterns in _KEPT.items()
    )
    # where a string may begin: looking there alone saves half of the time
    first = "" if is_mdx or has_superscripts else "(?=[`~[{!_<h$#%@+:^\\\\\U000f0000-\U0010ffff])"
    line = rf"^(?P<before>[ \t>]*+){line}(?:(?<=\]:)|(?=[ \t\r]*$))"
    return re.compile(f"{line}|{first}(?:{code}|{word}|{point})", re.MULTILINE)


def with_symbols(text: str, *, is_mdx: bool) -> tuple[str, dict[str, str]]:
    """Return a text with symbols, and the string of each symbol; equal strings have the same symbol."""
    symbols: dict[tuple[str, str], str] = {}

    def replace(match: re.Match[str]) -> str:
        kind = match.lastgroup or ""
        if kind == "code" or len(symbols) == _MOST:
            opening = _OPENING.match(match[0])
            return opening[0] + pattern.sub(replace, match[0][opening.end() :]) if opening else match[0]
        symbol = f"{'# ' * (kind == 'line')}@{chr(_FIRST[kind] + len(symbols))}"
        return (match["before"] or "") + symbols.setdefault((kind, match[kind]), symbol)

    pattern = _pattern(is_mdx=is_mdx, has_superscripts=re.search(r"<su[bp]>|\^[\w+-]+\^|\w~\d+~", text) is not None)
    masked = pattern.sub(replace, text)
    return masked, {symbol: string for (_, string), symbol in symbols.items()}


def without_symbols(text: str, strings: dict[str, str]) -> str:
    """Return a text with the strings of its symbols."""
    return re.sub(f"(?:# (?=@[\U00108000-\U0010ffff]))?{_SYMBOL}", lambda match: strings.get(match[0], match[0]), text)


@cache
def parser(*, is_mdx: bool) -> MarkdownIt:
    """Return the parser of texts with symbols, whose tokens within blocks have spans."""
    parser = MarkdownIt("commonmark", {"tasklists": True}).enable(["table", "strikethrough"])
    parser.use(front_matter.front_matter_plugin).use(deflist.deflist_plugin).use(admon.admon_plugin)
    for mark, info in _CONTAINERS.items():
        parser.use(container.container_plugin, mark, mark, lambda text, _, info=info: re.match(info, text) is not None)
    parser.use(anchors.anchors_plugin, max_level=6).use(colon_fence.colon_fence_plugin)  # other directives of MyST
    parser.use(dollarmath.dollarmath_plugin, allow_space=False, allow_digits=False, double_inline=True)
    parser.use(footnote.footnote_plugin, inline=False, move_to_end=False, always_match_refs=True)
    parser.block.ruler.before("admonition", "tab", _read_tab, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    parser.block.ruler.before("deflist", "term", _ends_before_term, {"alt": ["paragraph"]})
    parser.core.ruler.after("block", "titles", _add_titles)
    parser.core.ruler.after("inline", "edits", _pair_edits)
    parser.inline.ruler.before("escape", "symbol", _read_symbol)
    if is_mdx:
        parser.disable(["html_block", "code"])
    for rule in parser.inline.ruler.__rules__:  # the public names come without their functions
        parser.inline.ruler.at(rule.name, _recording_spans(rule.fn))
    return parser


def _read_symbol(state: StateInline, silent: bool) -> bool:
    symbol = re.compile(f"{_SYMBOL}|{_EDIT}").match(state.src, state.pos)
    if symbol and not silent:
        state.push("symbol" if symbol[0][0] == "@" else "edit", "", 0).content = symbol[0]
    state.pos = symbol.end() if symbol else state.pos
    return bool(symbol)


def _read_tab(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read `=== "Title"` of MkDocs as an admonition."""
    source, begin = state.src, state.bMarks[start] + state.tShift[start]
    if not re.compile(r'===[!+]? "').match(source, begin):
        return False
    state.src = f"{source[:begin]}!!!{source[begin + 3 :]}"
    is_tab = admon.index.admonition(state, start, end, silent)
    state.src = source
    return is_tab


def _ends_before_term(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """End a paragraph before the term of a definition, so that several terms are several texts."""
    begin = state.bMarks[start + 1] + state.tShift[start + 1] if start + 1 < end else len(state.src)
    return silent and re.compile(r":[ \t]+\S").match(state.src, begin) is not None


def _add_titles(state: StateCore) -> None:
    """Read the titles of containers and admonitions, for some of which markdown-it invents titles."""
    tokens: list[Token] = []
    for token in state.tokens:
        if tokens and tokens[-1].type == "admonition_title_open":
            token.content = ""
        tokens.append(token)
        title = _TITLES[token.type].match(token.info) if token.type in _TITLES else None
        if title and token.map:
            content, lines = next(filter(None, title.groups()), "").rstrip(), [token.map[0], token.map[0] + 1]
            content = content[:-2].rstrip() if content[-2:-1] == "@" else content  # attributes
            tokens.append(Token("inline", "", 0, content=content, map=lines, children=[]))
    state.tokens = tokens


def _pair_edits(state: StateCore) -> None:
    """Make tags of the marks of edits; a mark without a partner becomes text."""
    for block in state.tokens:
        opened: list[list[Token]] = []  # the marks of each edit
        for token in filter(lambda token: token.type == "edit", block.children or []):
            token.type, mark = "text", token.content.strip("{}")
            left = [] if token.content[0] == "{" else opened
            partners = [number for number, marks in enumerate(left) if marks[0].content.strip("{")[:2] == mark[-2:]]
            if token.content[0] == "{" or (token.content == "==" and not partners):
                opened.append([token])
            elif opened and mark == "~>" and [mark.content for mark in opened[-1]] == ["{~~"]:
                opened[-1].append(token)
            elif partners:  # any mark opened since then has no partner
                opened[partners[-1]][0].nesting, token.nesting = 1, -1
                for edit in (*opened[partners[-1]], token):
                    edit.type = edit.tag = "edit"
                del opened[partners[-1] :]


def _recording_spans(rule: Rule) -> Rule:
    """Return a rule that also records the spans of its tokens, but no reliable spans of text that stays text."""

    def run(state: StateInline, silent: bool) -> bool:
        start, num_tokens = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        end = state.pos
        for token in [] if silent else reversed(state.tokens[num_tokens:]):
            if SPAN in token.meta:
                continue
            span = start, state.pos
            if token.type == "text":  # marks of emphasis so far, one after the other
                end -= len(token.content)
                span = end, end + len(token.content)
            elif token.type == "link_open" and token.markup != "autolink":
                span = start, start + 1
            elif token.type == "link_close" and token.markup != "autolink":
                span = parseLinkLabel(state, start), state.pos
            token.meta[SPAN] = span
        return True

    return run
