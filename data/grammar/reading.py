"""Reads lexicon.yaml into the classes of lexicon.py."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from grammar.agreement import Agreement, Text
from grammar.english import English
from grammar.lexicon import Activity, Adjective, Frame, Giving, Lexicon, Noun, Reason, Verb
from grammar.spanish import Spanish

LEXICON = Path(__file__).with_name("lexicon.yaml")
TEXTS = ("feelings", "days", "hours", "numbers", "often", "relations", "weather", "falling")
LISTS = ("placed_at", "placed_on", "surfaces", "hurting")


def load_lexicon(path: Path = LEXICON) -> Lexicon:
    """Read and link the lexicon."""
    data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    english = English(data["english_verbs"], data["english_plurals"], data["vowel_sound"])
    spanish = Spanish(data["spanish_verbs"], data["spanish_plurals"], data["stressed_a"])
    nouns = read_nouns(data)
    classes = {kind: tuple(noun for noun in nouns.values() if noun.kind == kind) for kind in data["nouns"]}
    names = tuple((name, Agreement(3, gender=gender)) for gender in "mf" for name in data["names"][gender].split())
    words = Lexicon(english, spanish, nouns, classes, names)
    for group, members in data["groups"].items():
        classes[group] = words.find(members)
    return Lexicon(
        english,
        spanish,
        nouns,
        classes,
        names,
        adjectives=tuple(read_adjective(words, entry) for entry in data["adjectives"]),
        verbs=tuple(read_verb(words, entry) for entry in data["verbs"]),
        activities=tuple(read_activity(line) for line in data["activities"]),
        giving=tuple(Giving(Verb(entry["en"], entry["es"]), words.find(entry["of"])) for entry in data["giving"]),
        texts={name: read_texts(data[name]) for name in TEXTS},
        pastimes=tuple(read_activity(line) for line in data["pastimes"]),
        times={name: tuple(read_text(line) for line in lines) for name, lines in data["times"].items()},
        lists={name: frozenset(noun.en for noun in words.find(data[name])) for name in LISTS},
        reasons=tuple(read_reason(line) for line in data["reasons"]),
        follow_ups={adjective: split_verbs(line) for adjective, line in data["follow_ups"].items()},
        drawbacks=frozenset(data["drawbacks"].split()),
        where=data["where"],
        haunts=data["haunts"],
        anchors=data["anchors"],
        crowds=tuple(tuple(line.split(" > ")) for line in data["crowds"]),
        verb_lists={name: split_verbs(line) for name, line in data["verb_lists"].items()},
        once_a_day=tuple(data["once_a_day"]),
        liked=data["liked"],
    )


def read_nouns(data: Mapping[str, Any]) -> dict[str, Noun]:
    """Read the nouns; an English word stands for one noun only."""
    nouns: dict[str, Noun] = {}
    for kind, entries in data["nouns"].items():
        for en, entry in entries.items():
            es, gender, *feminine = entry.split()
            assert en not in nouns, f"lexicon.yaml lists the noun {en!r} twice"
            nouns[en] = Noun(
                en,
                es,
                gender,
                kind,
                feminine=feminine[0] if feminine else "",
                mass=kind in data["mass"].split(),
                paired=en in data["paired"],
                ownable=not {kind, en} & set(data["unowned"].split()),
            )
    return nouns


def read_adjective(words: Lexicon, entry: Mapping[str, str]) -> Adjective:
    """Read an adjective and find its nouns."""
    return Adjective(
        entry["en"],
        entry["es"],
        entry["be"],
        frozenset(words.find(entry["of"])),
        kind=entry.get("kind", ""),
        beside_noun=entry.get("use") != "predicate",
    )


def read_verb(words: Lexicon, entry: Mapping[str, Any]) -> Verb:
    """Read a verb and the nouns of its frames."""
    frames = tuple(Frame(*(words.find(side) for side in frame.split(">"))) for frame in entry["frames"])
    return Verb(
        entry["en"],
        entry["es"],
        frames,
        mode=entry.get("mode", ""),
        determiners=tuple(entry.get("with", "").split()),
        bare=entry.get("bare", False),
        simple=entry.get("simple", False),
    )


def read_activity(line: str) -> Activity:
    """Read a line like take | a bath = bañarse |, perhaps with a mode at the end in brackets."""
    line, _, mode = line.rstrip("]").partition(" [")
    (en_verb, en_rest), (es_verb, es_rest) = ([part.strip() for part in side.split("|")] for side in line.split("="))
    return Activity(Verb(en_verb, es_verb, mode=mode), Text(en_rest, es_rest))


def read_reason(line: str) -> Reason:
    """Read a line like not swim = cold afraid."""
    action, states = line.split(" = ")
    states = tuple(state.replace("_", " ") for state in states.split())
    return Reason(action.removeprefix("not "), states, negative=action.startswith("not "))


def split_verbs(line: str) -> frozenset[str]:
    """Read a line like see look_for."""
    return frozenset(verb.replace("_", " ") for verb in line.split())


def read_text(line: str) -> Text:
    """Read a line like tomorrow = mañana."""
    en, es = line.split(" = ")
    return Text(en, es)


def read_texts(entries: Mapping[str, str]) -> tuple[Text, ...]:
    """Read a mapping of English to Spanish."""
    return tuple(Text(en, es) for en, es in entries.items())
