"""The documentation site: it builds without a warning and without network, and its pages ask no other host."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

import countveil as cv

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow  # the build reads every page and every docstring, for about 20 seconds
BUILD = """
import socket, sys
def refuse(*given):
    raise OSError("the build of the documentation uses the network")
socket.socket.connect = socket.getaddrinfo = refuse
from sphinx.cmd.build import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with warnings as errors; a link to a page that does not exist is a warning."""
    folder = tmp_path_factory.mktemp("site")
    words = ["-W", "--keep-going", "-q", "-d", str(folder / "doctrees"), str(ROOT / "docs"), str(folder / "html")]
    done = subprocess.run([sys.executable, "-c", BUILD, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        loads = re.findall(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"([^\"]+)\"", page.read_text())
        assert not [url for url in loads if re.match(r"(?:https?:)?//", url)], page.name
    for style in site.rglob("*.css"):
        assert not re.findall(r"url\(['\"]?(?:https?:)?//|@import", style.read_text()), style.name


def test_links_of_the_site_lead_to_pages_and_headings(site: Path) -> None:
    anchors = {page.resolve(): set(re.findall(r"\bid=\"([^\"]+)\"", page.read_text())) for page in site.rglob("*.html")}
    checked = 0
    for page in anchors:
        for link in re.findall(r"<a [^>]*?href=\"([^\"]+)\"", page.read_text()):
            if re.match(r"[a-z]+:", link):
                continue
            name, _, anchor = unescape(link).partition("#")
            target = (page.parent / name).resolve() if name else page
            assert target.exists(), f"{page.name} links to {link}"
            if anchor and target in anchors:
                checked += 1
                assert anchor in anchors[target], f"{page.name} links to {link}"
    assert checked > 500


def test_the_site_has_the_version_and_every_public_name(site: Path) -> None:
    assert f"countveil {cv.__version__}" in (site / "index.html").read_text()
    text = (site / "api.html").read_text()
    methods = ["Curator.budget", "Curator.count", "Mechanism.plot", "Mechanism.release", "Table.quantile", "Table.to"]
    assert not [name for name in methods if f'id="countveil.{name}"' not in text]
    assert not [name for name in dir(cv) if not name.startswith("_") and f'id="countveil.{name}"' not in text]


def test_the_index_shows_the_four_groups_of_pages(site: Path) -> None:
    """Pages without a place in the index are a warning of the build; the groups are what readers look for."""
    text = (site / "index.html").read_text()
    assert [word for word in ("Tutorial", "How to", "Reference", "Explanation") if f">{word}<" in text] == [
        *("Tutorial", "How to", "Reference", "Explanation")
    ]


@pytest.mark.browser
def test_search_finds_a_page_and_no_request_leaves_the_site(site: Path) -> None:
    from tests.support.browsing import launched

    with launched() as browser:
        page, addresses = browser.new_page(), list[str]()
        page.on("request", lambda request: addresses.append(request.url))
        page.goto(f"file://{site}/search.html?q=cells_per_person")
        page.wait_for_selector("#search-results li a")
        assert "configuration.html" in page.inner_html("#search-results")
    assert len(addresses) > 5
    assert not [url for url in addresses if not url.startswith(("file://", "data:", "chrome-extension://"))]
