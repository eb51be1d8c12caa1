"""What a user may have meant by a setting that does not exist."""

import dataclasses
import difflib
import re
import typing
from collections.abc import Iterable, Iterator

from seq2seq.extras import train_command

_MOST = 3  # suggestions


def setting_keys(schema: type, prefix: str = "") -> Iterator[str]:
    """The dotted keys of all settings in a dataclass and in the dataclasses that its fields are."""
    types = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        if dataclasses.is_dataclass(types[field.name]):
            yield from setting_keys(types[field.name], f"{prefix}{field.name}.")
        else:
            yield prefix + field.name


def suggest(key: str, known: Iterable[str]) -> list[str]:
    """The known keys and groups whose name comes nearest to that of an unknown one, at most three.

    Keys of several sections can have the name; the nearest of them comes first.
    """
    found = list(known)
    nearest = difflib.get_close_matches(_name(key), {_name(one) for one in found}, n=1, cutoff=0.75)
    same = [one for one in found if _name(one) in nearest]
    return difflib.get_close_matches(key, same, _MOST, cutoff=0.0)


def unknown_setting(key: str, known: Iterable[str]) -> str:
    """Say that a setting does not exist, and which ones come near."""
    near = suggest(key, known)
    hint = f"did you mean {' or '.join(near)}?" if near else f"`{train_command()} --help` lists all settings"
    return f"there is no setting {key}: {hint}"


def explain(error: Exception, known: Iterable[str]) -> str | None:
    """Say so if an error of Hydra or OmegaConf is about a setting that does not exist; else None."""
    message = f"{error}\n{error.__cause__ or ''}"
    overridden, full_key = (
        re.search(pattern, message) for pattern in (r"Could not override '(.+?)'", r"full_key: (\S+)")
    )
    key = overridden or full_key
    if key is None or not re.search(r"Key '.*' (not in '|is not in struct)", message):
        return None
    if "reference_type=Dict" in message:
        section, _, name = key[1].rpartition(".")
        return f"{section} has no entry {name} yet: add it with a plus, as +{key[1]}=VALUE"
    return unknown_setting(key[1], known)


def _name(key: str) -> str:
    return key.replace("/", ".").rpartition(".")[2]
