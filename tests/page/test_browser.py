"""The page in Chromium: no message on the console, no request, figures that follow the controls, by keyboard too.

Runs where Chromium and playwright are (`pip install 'zeroplan[browser]'`, Debian's `chromium`).
"""

from __future__ import annotations

import json
import random
import shlex
import shutil

import pytest

import zeroplan as package

playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
WIDTHS, SCHEMES = (360, 1440), ("light", "dark")
AXES = 7
JOB = {"params": "1.3B", "gpus": 2, "gpu": "a100-40gb"}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    written = tmp_path_factory.mktemp("page") / "plan.html"
    package.Report(package.recommend(**JOB)).write(written)
    return written


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


class Opened:
    """The page in a tab, with what its console said and what it asked for beside itself."""

    def __init__(self, browser, path, width=1440, scheme="light", at=""):
        self.tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.said, self.requests = [], []
        self.tab.on("console", lambda message: self.said.append(message.text))
        self.tab.on("pageerror", lambda error: self.said.append(str(error)))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.goto(path.as_uri() + at)
        self.tab.wait_for_selector("body[data-ready=yes]")
        self.grid = json.loads(self.tab.text_content("#grid"))

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.tab.close()

    def figures(self):
        pairs = self.tab.eval_on_selector_all(
            "#cell-figures div", "all => all.map(one => [one.children[0].textContent, +one.children[1].dataset.value])"
        )
        return dict(pairs)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_opens_in_silence_and_axe_has_nothing_to_say(browser, path, width, scheme):
    with Opened(browser, path, width, scheme) as page:
        assert page.said == []
        assert page.requests == [path.as_uri()]
        assert page.tab.evaluate("document.documentElement.scrollWidth") <= width
        assert page.tab.eval_on_selector_all(".chart", "all => all.every(one => one.querySelector('svg path, svg line'))")
        for details in page.tab.query_selector_all("details:not([open]) > summary"):
            details.click()
        result = axe.Axe().run(page.tab)
        assert result.violations_count == 0, result.generate_report()
        assert page.tab.evaluate("document.documentElement.scrollWidth") <= width


def test_each_control_s_figures_are_those_of_estimate(browser, path, zeroplan):
    with Opened(browser, path) as page:
        selects = page.tab.query_selector_all(".controls select")
        assert len(selects) == AXES
        counted = [key for key, cell in sorted(page.grid["cells"].items()) if "figures" in cell]
        for key in random.Random(7).sample(counted, 10):
            for select, at in zip(selects, key.split(","), strict=True):
                select.select_option(index=int(at))
            one = zeroplan(*shlex.split(page.tab.text_content("#cell-command"))[1:], "--json").json
            figures = page.figures()
            assert figures["needed per GPU"] == one["fit"]["needed"]
            assert figures["step"] == pytest.approx(one["time"]["step"], rel=1e-12)
            assert page.tab.text_content("#cell-verdict") == one["fit"]["verdict"].replace("_", " ")
        assert page.said == []


def test_outside_of_the_grid_it_is_silent_and_says_the_command(browser, path, zeroplan):
    with Opened(browser, path) as page:
        plan = [int(part) for part in next(iter(page.grid["cells"])).split(",")]
        for at in (4, 5):  # sequence and GPUs, both other than the plan's
            select = page.tab.query_selector_all(".controls select")[at]
            values = select.query_selector_all("option")
            select.select_option(index=next(place for place in range(len(values)) if place != plan[at]))
        assert page.figures() == {}
        assert "no figures" in page.tab.text_content("#cell-verdict")
        ran = zeroplan(*shlex.split(page.tab.text_content("#cell-command"))[1:], "-q")
        assert ran.code in (0, 1)
        page.tab.click("text=Back to the plan")
        page.tab.wait_for_function("document.querySelectorAll('#cell-figures div').length > 0")
        assert page.said == []


def test_the_keyboard_alone_reaches_all(browser, path):
    with Opened(browser, path) as page:
        reached = set()
        for _press in range(400):
            page.tab.keyboard.press("Tab")
            reached.add(page.tab.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
        wanted = page.tab.evaluate(
            "[...document.querySelectorAll('a, button, select, summary')].filter(one => one.checkVisibility())"
            ".map(one => [...document.querySelectorAll('*')].indexOf(one))"
        )
        assert set(wanted) <= reached
        first = page.tab.query_selector(".controls select")
        first.focus()
        before = page.figures()
        page.tab.keyboard.press("ArrowDown")
        assert page.figures() != before


def test_settings_stand_in_the_address(browser, path):
    with Opened(browser, path) as page:
        page.tab.query_selector(".controls select").select_option(index=3)
        said = page.figures()
        address = page.tab.evaluate("location.hash")
    with Opened(browser, path, at=address) as again:
        assert again.figures() == said


def test_a_file_is_copied(browser, path):
    with Opened(browser, path) as page:
        page.tab.evaluate("Object.defineProperty(navigator, 'clipboard', {value: {writeText: text => {window.copied = text;"
                          " return Promise.resolve(); }}})")  # fmt: skip
        page.tab.click("button[data-copies=file-1]")
        page.tab.wait_for_function("document.getElementById('said').textContent.startsWith('Copied')")
        assert json.loads(page.tab.evaluate("copied"))["zero_optimization"]["stage"] >= 0


def test_it_prints_on_a4_in_light_colours(browser, path):
    with Opened(browser, path, scheme="dark") as page:
        page.tab.emulate_media(media="print", color_scheme="dark")
        assert page.tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.tab.pdf(format="A4").startswith(b"%PDF")
