"""The documents as a site: every page has its place, every link a target, generated pages are fresh, nothing is fetched."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from tests.reference_pages import FOLDER, PAGES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CHROMIUM = shutil.which("chromium")
TEXTS = {path: path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
FETCHES = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


def places(nav):
    for each in nav:
        if isinstance(each, str):
            yield each
        else:
            for below in each.values():
                yield from places(below) if isinstance(below, list) else (below,)


def anchors(text):
    """As a heading is linked to."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", one.lower().replace("`", "")).strip()) for one in headings}


def test_every_page_has_a_place():
    nav = list(places(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    pages = {path.relative_to(DOCS).as_posix() for path in TEXTS}
    assert set(nav) == {page for page in pages if not re.match(r"rules/ZP\d+\.md", page)}
    assert len(nav) == len(set(nav))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_every_link_has_a_target(path):
    for link in LINK.findall(FENCED.sub("", TEXTS[path])):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.is_relative_to(DOCS), link
        assert target in TEXTS, link
        assert not anchor or anchor in anchors(TEXTS[target]), link


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_fresh(name):
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "run python -m tests.reference_pages"


class Fetched(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        stated = dict(attrs)
        if tag in FETCHES and stated.get("rel") != "canonical":
            self.found.append(stated.get(FETCHES[tag]) or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if find_spec("mkdocs") is None or find_spec("material") is None:
        pytest.skip("needs zeroplan[docs]")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


def test_the_site_is_built_and_fetches_nothing(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) >= len(TEXTS)
    for page in pages:
        away = [each for each in Fetched(page.read_text(encoding="utf-8")).found if re.match(r"(https?:)?//", each)]
        assert not away, page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//", style.read_text(encoding="utf-8")), style


def test_the_site_is_built_to_be_searched_from_a_folder(site):
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page, requests = browser.new_page(viewport={"width": 1440, "height": 900}), []
        page.on("request", lambda request: requests.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.click("input.md-search__input")
        page.keyboard.type("reduce_bucket_size")  # the search listens to keys
        page.wait_for_selector(".md-search-result__item a", timeout=20_000)
        assert all(url.startswith(("file:", "data:", "blob:", "about:")) for url in requests)
        browser.close()
