"""Write NAME.tsv.xz from the folder of a project that publishes its messages in English and Spanish.

`python data/corpora.py --commands > make.sh` lists, for each corpus of the table below, what downloads the folder and
what makes the file. Documents, which have to be aligned sentence by sentence, are not in the table.
"""

import argparse
import html
import json
import lzma
import re
import shlex
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polib
import yaml

# name → repository@revision on GitHub, debian:PACKAGE or npm:PACKAGE; pattern of the Spanish files; and, if the keys of
# these files are no English text, what makes their names those of the English files, "old→new".
CORPORA = {
    "adarkroom": ("doublespeakgames/adarkroom@1fada4620b", "lang/es/*.po", ""),
    "alaveteli": ("mysociety/alaveteli@351eb61e06", "locale/es/*.po", ""),
    "bloom_housing": ("bloom-housing/bloom@a5e2c851fd", "shared-helpers/src/locales/es.json", "es.json→general.json"),
    "cal_itp": ("cal-itp/benefits@6ac6538b68", "benefits/locale/es/*/*.po", "/es/→/en/"),
    "carpentries": ("carpentries-i18n/i18n@7ca6d1678b", "po/*.es.po", ""),
    "cataclysm_dda": ("CleverRaven/Cataclysm-DDA@HEAD", "lang/po/es_ES.po", ""),
    "chayn_bloom": ("chaynHQ/bloom-frontend@f1ad7415b0", "**/messages/**/es.json", "es.json→en.json"),
    "couchers": ("Couchers-org/couchers@3e1b7a583d", "app/web/**/locales/es.json", "es.json→en.json"),
    "doj_civil_rights": ("usdoj-crt/crt-portal@6dfa4f0727", "crt_portal/*/locale/es/*/*.po", ""),
    "fdroid_site": ("f-droid/fdroid-website@ab4533fee2", "po/*.es.po", ""),
    "freeciv": ("debian:freeciv-data", "**/es/LC_MESSAGES/*.mo", ""),
    "gimp_help": ("GNOME/gimp-help@HEAD", "po/es/**/*.po", ""),
    "gnome_user_docs": ("GNOME/gnome-user-docs@HEAD", "*/es/es.po", ""),
    "hedy": ("hedyorg/hedy@HEAD", "content/**/es.yaml", "es.yaml→en.yaml"),
    "inaturalist": ("inaturalist/inaturalist@7d0d1d1fdc", "config/locales/es.yml", "es.yml→en.yml"),
    "justfix_tenants": ("JustFixNYC/tenants2@dcf2f5ad81", "locales/es/**/*.po", "/es/→/en/"),
    "kstars": ("debian:kstars-data", "**/es/LC_MESSAGES/*.mo", ""),
    "liberapay": ("liberapay/liberapay.com@cc5be724ec", "i18n/core/es.po", ""),
    "libreoffice_ui": ("debian:libreoffice-l10n-es", "**/es/LC_MESSAGES/*.mo", ""),
    "login_gov_app": ("18F/identity-idp@e4407766eb", "config/locales/**/es.yml", "es.yml→en.yml"),
    "mediawiki": ("wikimedia/mediawiki@HEAD", "languages/i18n/es.json", "es.json→en.json"),
    "mnbenefits": ("codeforamerica/shiba@f3f241e01c", "src/main/resources/messages_es.properties", "_es→"),
    "open_contracting": ("open-contracting/standard@HEAD", "docs/locale/es/**/*.po", ""),
    "openfoodnetwork": ("openfoodfoundation/openfoodnetwork@d4f0a99e2a", "config/locales/es.yml", "es.yml→en.yml"),
    "osm_website": ("openstreetmap/openstreetmap-website@9da0fa5ecb", "config/locales/es.yml", "es.yml→en.yml"),
    "python_docs_es": ("python/python-docs-es@HEAD", "**/*.po", ""),
    "scratch_l10n": ("npm:scratch-l10n", "**/es.json", "es.json→en.json"),
    "shattered_pixel_dungeon": (
        "00-Evan/shattered-pixel-dungeon@HEAD",
        "core/src/main/assets/messages/*/*_es.properties",
        "_es→",
    ),
    "stellarium_skycultures": ("Stellarium/stellarium@HEAD", "po/stellarium-skycultures/es.po", ""),
    "tasking_manager": ("hotosm/tasking-manager@5a4da86619", "frontend/src/locales/es.json", "es.json→en.json"),
    "us_tax_help": ("codeforamerica/vita-min@HEAD", "config/locales/es.yml", "es.yml→en.yml"),
    "who_owns_what": ("JustFixNYC/who-owns-what@37e29bf239", "client/src/locales/es/*.po", "/es/→/en/"),
    "valyria_tear": ("ValyriaTear/ValyriaTear@1c882efff3", "po/**/es.po", ""),
    "wesnoth": ("wesnoth/wesnoth@HEAD", "po/*/es.po", ""),
    "widelands": ("widelands/widelands@HEAD", "data/i18n/translations/*/es.po", ""),
    "xquad": ("google-deepmind/xquad@HEAD", "xquad.es.json", ".es.→.en."),
}


def commands(name: str) -> Iterator[str]:
    """Yield the command lines that download a corpus's folder and write its file."""
    source, folder = CORPORA[name][0], f"downloads/{name}"
    kind, _, package = source.rpartition(":")
    if kind == "debian":
        yield f"mkdir -p {folder} && apt-get download {package} && dpkg-deb -x {package}_*.deb {folder}"
    elif kind == "npm":
        yield f"mkdir -p {folder} && npm pack {package} && tar -xzf {package}-*.tgz -C {folder}"
    else:
        repository, _, revision = source.partition("@")
        yield f"git clone -q --filter=blob:none https://github.com/{repository} {folder}"
        yield f"git -C {folder} checkout -q {revision}"
    yield shlex.join(["python", "data/corpora.py", name, folder, "--output", "mixed/corpora"])


def read_pairs(folder: Path, name: str) -> list[tuple[str, str]]:
    """Return a corpus's different pairs of English and Spanish messages, without markup.

    Raises:
        ValueError: the folder has no Spanish file, a file cannot be read, or no message is translated.
    """
    _, pattern, renamed = CORPORA[name]
    old, new = renamed.split("→") if renamed else ("", "")
    pairs: dict[tuple[str, str], None] = {}  # in the order of the files
    for path in sorted(folder.glob(pattern)):
        spanish = read_messages(path)
        other = folder / f"{path.relative_to(folder)}".replace(old, new) if renamed else path
        english = read_messages(other) if renamed and other.is_file() else {}
        for key, target in spanish.items():
            pair = plain(english.get(key, "" if renamed else key)), plain(target)
            if all(pair) and pair[0] != pair[1]:
                pairs[pair] = None
    if not pairs:
        raise ValueError(f"{folder} has no translated message in {pattern}")
    return list(pairs)


def read_messages(path: Path) -> dict[str, str]:
    """Return the messages of a file by their keys; the key of PO and MO is the English text or an identifier.

    Raises:
        ValueError: the file is malformed; the message names it.
    """
    try:
        if path.suffix in (".po", ".mo"):
            entries: Any = polib.mofile(str(path)) if path.suffix == ".mo" else polib.pofile(str(path))
            return {entry.msgid: entry.msgstr for entry in entries.translated_entries()}
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".properties":
            lines = re.sub(r"\\\n[ \t]*", "", text).splitlines()
            fields = (
                re.split(r"\s*[=:]\s*", line, maxsplit=1) for line in lines if line.strip()[:1] not in ("", "#", "!")
            )
            return dict(field for field in fields if len(field) == 2)
        tree = json.loads(text) if path.suffix == ".json" else yaml.load(text, yaml.BaseLoader)
        if not isinstance(tree, dict):
            raise ValueError("it is no table of messages")
        return dict(flatten(tree.get(path.stem, tree), ""))  # YAML has the language as its root
    except (ValueError, OSError, yaml.YAMLError) as error:
        raise ValueError(f"{path} cannot be read: {' '.join(str(error).split())}") from error


def flatten(tree: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yield the texts of nested dictionaries and lists, each with the keys that lead to the text."""
    if isinstance(tree, str):
        yield key, tree
    elif isinstance(tree, dict | list):
        for name, part in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from flatten(part, f"{key}/{name}")


def plain(text: str) -> str:
    """Return a message in one line and in NFC, without tags and entities."""
    text = re.sub(r"</?(?:p|br|li|ul|ol|div|td|tr|h\d)\b[^<>]*>", " ", text)
    text = html.unescape(re.sub(r"</?[\w!][^<>]*>", "", text))
    return " ".join(unicodedata.normalize("NFC", text).split())


def main(arguments: Sequence[str] | None = None) -> None:
    """Write a corpus, or list the commands of one or all; without arguments, as the command line says."""
    parser = argparse.ArgumentParser(prog="python data/corpora.py", description=__doc__)
    parser.add_argument("name", nargs="?", choices=CORPORA, metavar="NAME")
    parser.add_argument("folder", nargs="?", type=Path, help="what the first commands of NAME have downloaded")
    parser.add_argument("--output", type=Path, default=Path(), help="folder for NAME.tsv.xz")
    parser.add_argument("--commands", action="store_true", help="list the commands of NAME, or of all corpora")
    options = parser.parse_args(arguments)
    if options.commands:
        names = [options.name] if options.name else list(CORPORA)
        sys.stdout.write("".join(f"{line}\n" for name in names for line in commands(name)))
        return
    if options.folder is None:
        parser.error("give NAME and FOLDER, or --commands")
    try:
        pairs = read_pairs(options.folder, options.name)
        options.output.mkdir(parents=True, exist_ok=True)
        path = options.output / f"{options.name}.tsv.xz"
        path.write_bytes(lzma.compress("".join(f"{source}\t{target}\n" for source, target in pairs).encode()))
        sys.stdout.write(f"{path}: {len(pairs):,} pairs\n")
    except (OSError, ValueError) as error:
        parser.error(f"{error}: see python data/corpora.py --commands {options.name}")


if __name__ == "__main__":
    main()
