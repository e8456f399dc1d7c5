"""The page of a plan: each figure of its grid is that of `estimate`, nothing of the user's is markup, no request is made."""

from __future__ import annotations

import json
import random
import re
import shlex
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest

import zeroplan as package
from zeroplan.errors import ContradictionError
from zeroplan.page.content import CHARTS

JOB = ("1.3B", "--gpus", "2", "--gpu", "a100-40gb")
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>`|**b**"
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32000, "hidden_size": 512,
    "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 1376,
}  # fmt: skip


@pytest.fixture(scope="module")
def page():
    return package.Report(package.recommend(params="1.3B", gpus=2, gpu="a100-40gb")).html()


class Elements(HTMLParser):
    """Tags of a page with their attributes, and the text of each script."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.scripts, self.text, self._script = [], {}, "", None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self._script = dict(attrs).get("id", "")

    def handle_endtag(self, tag):
        if tag == "script":
            self._script = None

    def handle_data(self, data):
        if self._script is None:
            self.text += data
        else:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data


def grid_of(page):
    return json.loads(Elements(page).scripts["grid"])


def command(grid, key):
    """The command that the page shows for a cell."""
    words = [grid["words"][axis][int(value)] for axis, value in enumerate(key.split(","))]
    return shlex.split(" ".join([grid["base"], *words, grid["cells"][key]["batch"]]))[1:]


def figure(grid, key, name):
    return next(value for known, value, _text in grid["cells"][key]["figures"] if grid["figures"][known] == name)


def test_each_figure_is_that_of_estimate(page, zeroplan):
    grid = grid_of(page)
    counted = [key for key, cell in sorted(grid["cells"].items()) if "figures" in cell]
    for key in random.Random(30).sample(counted, 10):
        cell = grid["cells"][key]
        one = zeroplan(*command(grid, key), "--json").json
        assert cell["verdict"] == one["fit"]["verdict"].replace("_", " ")
        assert figure(grid, key, "needed per GPU") == one["fit"]["needed"]
        assert figure(grid, key, "held between steps") == one["memory"]["gpu"]["resident"]
        assert figure(grid, key, "host memory per node") == one["fit"]["host"]["needed"]
        assert figure(grid, key, "step") == pytest.approx(one["time"]["step"], rel=1e-12)
        assert figure(grid, key, "tokens/s per GPU") == pytest.approx(one["time"]["tokens_per_s_per_gpu"], rel=1e-12)
        parts = sum(round(part[0] * 2**30) for part in cell["memory"] if part)
        assert parts == one["fit"]["needed"]


def test_what_the_plan_runs_stands_in_each_command(zeroplan):
    """Attention that nobody stated, and who reads the files."""
    plan = package.recommend(params="350M", gpus=1, gpu="t4", seq=256, attention="eager", lora=8, target="deepspeed")
    page = package.Report(plan).html()
    grid = grid_of(page)
    assert " --attention eager" in grid["base"]
    assert "--lora" not in grid["base"]
    assert grid["words"][-1] == ["", "--lora 8", "--lora 8 --quantize nf4 --double-quant yes"]
    assert "--lora 8 --seq 256 --attention eager --gpus 1 --gpu t4 --for deepspeed --dir plan" in Elements(page).text
    key = next(key for key, cell in grid["cells"].items() if "figures" in cell and key.endswith(",2"))
    assert zeroplan(*command(grid, key), "--json").json["fit"]["needed"] == figure(grid, key, "needed per GPU")


def test_a_cell_that_estimate_refuses_says_why(page, zeroplan):
    grid = grid_of(page)
    refused = [key for key, cell in grid["cells"].items() if "refused" in cell]
    assert refused
    for key in refused[:3]:
        ran = zeroplan(*command(grid, key))
        assert (ran.code, ran.err) == (2, f"zeroplan: {grid['cells'][key]['refused']}\n")


def test_the_grid_has_the_plan_and_what_is_near(page):
    grid = grid_of(page)
    selects = [attrs["name"] for tag, attrs in Elements(page).tags if tag == "select"]
    assert selects == ["stage", "offload", "checkpointing", "micro-batch", "sequence", "GPUs", "trains"]
    assert len(grid["words"]) == len(selects)
    places = [tuple(map(int, key.split(","))) for key in grid["cells"]]
    for at, name in enumerate(selects):
        assert len({place[at] for place in places}) == len(grid["words"][at]), name


def test_wide_has_every_combination_of_one_that_leaves_the_plan():
    page = package.Report(package.recommend(params="350M", gpus=1, gpu="t4", seq=256), "wide").html()
    grid = grid_of(page)
    assert len(page.encode()) < 1_500_000
    sizes = [len(words) for words in grid["words"]]
    free = sizes[0] * sizes[1] * sizes[2] * sizes[3]
    assert len(grid["cells"]) == free * (1 + sum(size - 1 for size in sizes[4:]))


def test_it_asks_for_nothing(page):
    """No attribute of a tag fetches anything, and the policy in its head forbids that scripts do."""
    assert len(page.encode()) < 1_500_000
    elements = Elements(page)
    fetched = [value for _tag, attrs in elements.tags for name, value in attrs.items()
               if name in ("src", "href", "srcset", "data", "action", "poster")]  # fmt: skip
    assert all(value.startswith(("#", "data:,")) for value in fetched)
    (policy,) = (attrs["content"] for tag, attrs in elements.tags if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'; ")
    assert "connect-src" not in policy
    style = re.search("<style>(.*?)</style>", page, re.DOTALL)[1]
    assert "url(" not in style
    assert "@import" not in style


def test_names_are_text(tmp_path, monkeypatch):
    """The model's folder ends scripts and begins pictures, as far as anybody reads it as markup."""
    folder = tmp_path / HOSTILE
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.chdir(tmp_path)
    report = package.Report(package.recommend(model=f"./{HOSTILE}", gpus=2, gpu="t4", seq=64))
    elements = Elements(report.html())
    tags = [tag for tag, _attrs in elements.tags]
    assert "img" not in tags
    assert tags.count("script") == 4  # the charts' data, the grid's, the library, ours
    assert f"--model './{HOSTILE}'" in elements.text
    first, *_rest, = report.markdown().splitlines()
    assert first.startswith(r"# zeroplan: script\>\<img src=x onerror=alert(2)\>\`\|\*\*b\*\*")
    assert all(json.loads(elements.scripts[name]) for name in ("charts", "grid"))


def test_where_nothing_fits_it_says_what_is_nearest(tmp_path, zeroplan, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = zeroplan("report", "70B", "--gpu", "t4", "--gpus", "1", "--stage", "2", "-o", "plan.html")
    assert ran.code == 1
    page = Elements((tmp_path / "plan.html").read_text())
    assert "nothing fits" in page.text
    assert "Nearest to fitting" in page.text
    assert "ds_config.json" not in page.text.partition("The files")[2]


def test_the_tables_of_markdown_are_whole():
    text = package.Report(package.recommend(params="1.3B", gpus=2, gpu="a100-40gb")).markdown()
    rows = [re.split(r"(?<!\\)\|", line) for line in text.splitlines() if line.startswith("|")]
    tables = text.split("\n\n")
    assert len([block for block in tables if block.startswith("|")]) >= 7
    for block in tables:
        if block.startswith("|"):
            assert len({len(re.split(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
    assert rows[0][1].strip() == "setting"


@pytest.mark.parametrize("chart", CHARTS)
def test_a_chart_is_a_picture(chart):
    pytest.importorskip("vl_convert")
    report = package.Report(package.recommend(params="1.3B", gpus=2, gpu="a100-40gb"))
    root = ElementTree.fromstring(report.svg(chart))
    assert root.tag.endswith("svg")
    assert "var(--" not in report.svg(chart)
    assert report.png(chart).startswith(b"\x89PNG")


def test_without_the_converter_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "vl_convert", None)
    with pytest.raises(ContradictionError, match=r"pip install 'zeroplan\[pictures\]'"):
        package.Report(package.recommend(params="1.3B", gpus=2, gpu="a100-40gb")).svg("memory")


def test_a_notebook_shows_the_page_in_a_frame():
    shown = package.Report(package.recommend(params="1.3B", gpus=2, gpu="a100-40gb"))._repr_mimebundle_()
    assert shown["text/html"].startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert shown["text/plain"].startswith("1.3B on 2 GPUs: ")


@pytest.mark.parametrize(
    ("words", "names"),
    [((), ["plan.html"]), (("-o", "a.md"), ["a.md"]), (("--format", "markdown"), ["plan.md"]),
     (("-o", "b.txt", "--format", "html"), ["b.txt"])],
)  # fmt: skip
def test_the_ending_or_format_says_what_is_written(tmp_path, zeroplan, monkeypatch, words, names):
    monkeypatch.chdir(tmp_path)
    ran = zeroplan("report", *JOB, *words)
    assert ran.code == 0
    assert ran.out.splitlines()[1] == f"written: {names[0]}"
    assert [path.name for path in tmp_path.iterdir()] == names
    begins = Path(names[0]).read_text()[:15]
    assert begins == ("<!doctype html>" if "markdown" not in words and not names[0].endswith(".md") else "# zeroplan: 1.3B"[:15])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--format", "pdf"), "--format: found 'pdf', expected html, markdown, svg, png"),
        (("--grid", "huge"), "--grid: found 'huge', expected near or wide"),
        (("-o", "."), "-o '.': found a folder"),
        (("-o", "there.html"), "-o 'there.html': found something already there"),
        (("--format", "svg", "--chart", "pie"), "--chart: found 'pie', expected memory, step, time"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, zeroplan, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.html").write_text("mine")
    ran = zeroplan("report", *JOB, *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["there.html"]
    assert (tmp_path / "there.html").read_text() == "mine"


def test_several_cards_are_no_page(zeroplan):
    ran = zeroplan("report", "1.3B", "--gpus", "2", "--gpu", "a100,h100")
    assert (ran.code, ran.out) == (2, "")
    with pytest.raises(ContradictionError, match="report is of one plan"):
        package.Report(package.recommend(params="1.3B", gpus=2, gpu=["a100", "h100"]))


def test_to_standard_output_it_is_the_page_alone(zeroplan):
    ran = zeroplan("report", *JOB, "-o", "-")
    assert ran.code == 0
    assert ran.out.startswith("<!doctype html>")
    assert ran.out.endswith("</html>\n")
