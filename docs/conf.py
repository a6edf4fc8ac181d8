"""The documentation site: `make docs` builds it from these pages, without network; a warning is an error."""

from __future__ import annotations

import re

from sphinx.application import Sphinx

import countveil

project = "countveil"
author = "the countveil authors"
version = release = countveil.__version__
html_title = f"countveil {release}"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["figures/*"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_theme_options = {"source_view_link": "", "source_edit_link": ""}

myst_heading_anchors = 4
nb_execution_mode = "off"  # notebooks have their outputs; a test runs them
nb_render_markdown_format = "myst"

autodoc_default_options = {"members": True, "member-order": "bysource", "inherited-members": "BaseException,tuple"}
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False


def use_pages_of_the_site(app: Sphinx, page: str, source: list[str]) -> None:
    """Files outside this folder that pages link to are pages of the site too."""
    source[0] = re.sub(r"\]\(\.\./(CONTRIBUTING|CHANGELOG|SECURITY)\.md", lambda m: f"]({m[1].lower()}.md", source[0])


def quote_code(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain text with `code` in backquotes; bars and stars mean nothing else."""
    example = False
    for i, line in enumerate(lines):
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>> "))
        if not example:
            parts = line.split("`")
            lines[i] = "``".join(
                re.sub(r"([|*])", r"\\\1", part) if j % 2 == 0 else part for j, part in enumerate(parts)
            )


def setup(app: Sphinx) -> None:
    app.connect("source-read", use_pages_of_the_site)
    app.connect("autodoc-process-docstring", quote_code, priority=400)
