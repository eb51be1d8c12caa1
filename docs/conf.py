"""Settings of the documentation site: `sphinx-build -W docs docs/_build` builds it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
sys.path.insert(0, str(Path(__file__).parents[1]))  # this clone's package, not another one that is installed

import seq2seq

project = "seq2seq"
author = "The seq2seq authors"
version = release = seq2seq.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "reference",
]
exclude_patterns = ["_build", "_ext"]
smartquotes = False  # --beam stays --beam
myst_heading_anchors = 3

highlight_language = "none"  # of code blocks that name no language
default_role = "literal"  # docstrings write `code`
add_module_names = False
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_inherit_docstrings = False
autoclass_content = "both"
autodoc_mock_imports = ["ctranslate2", "polib", "ray", "transformers"]  # optional: imported by modules at once
napoleon_use_ivar = True

html_theme = "furo"
html_title = "seq2seq"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["live.js"]
html_favicon = "../seq2seq/apps/serve/page/icon.svg"
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True
html_copy_source = False
html_show_copyright = False
