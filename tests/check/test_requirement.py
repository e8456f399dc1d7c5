"""The DeepSpeed that a project asks for, as pip, Poetry, conda and lock files write it."""

from __future__ import annotations

import pytest

from zeroplan.check.requirement import requirement_of

CONFIG = '{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "leaf_module": {}}}'


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "ds.json").write_text(CONFIG, encoding="utf-8")

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return requirement_of("configs/ds.json")

    return write


@pytest.mark.parametrize(
    ("name", "text", "place", "version"),
    [
        ("requirements.txt", "torch\ndeepspeed==0.16.9  # pinned\n", "requirements.txt:2", "0.16.9"),
        ("requirements-train.txt", "deepspeed[inf] ~= 0.15.0\n", "requirements-train.txt:1", "0.15.4"),
        ("requirements.txt", "# deepspeed==0.15.0\ndeepspeed>=0.14,<0.17,!=0.16.9\n", "requirements.txt:2", "0.16.8"),
        ("requirements.txt", "deepspeed @ git+https://github.com/deepspeedai/DeepSpeed@v0.16.4\n", "requirements.txt:1", "0.16.4"),
        ("requirements.txt", "git+https://github.com/microsoft/DeepSpeed.git@v0.14.4\n", "requirements.txt:1", "0.14.4"),
        ("pyproject.toml", '[project]\ndependencies = ["deepspeed==0.17.*"]\n', "pyproject.toml:2", "0.17.6"),
        ("pyproject.toml", '[tool.poetry.dependencies]\ndeepspeed = "^0.16.4"\n', "pyproject.toml:2", "0.16.9"),
        ("pyproject.toml", '[tool.poetry.dependencies]\ndeepspeed = {version = "0.16.4", optional = true}\n', "pyproject.toml:2", "0.16.4"),
        ("poetry.lock", '[[package]]\nname = "deepspeed"\nversion = "0.18.3"\n', "poetry.lock:3", "0.18.3"),
        ("uv.lock", '[[package]]\nname = "torch"\nversion = "2.9"\n[[package]]\nname = "deepspeed"\nversion = "0.18.2"\n', "uv.lock:6", "0.18.2"),
        ("Pipfile.lock", '{"default": {"deepspeed": {"hashes": [], "version": "==0.15.2"}}}', "Pipfile.lock:1", "0.15.2"),
        ("environment.yml", "dependencies:\n  - conda-forge::deepspeed=0.17.1\n", "environment.yml:2", "0.17.1"),
        ("environment.yml", "dependencies:\n  - pip:\n    - deepspeed==0.17.2\n", "environment.yml:3", "0.17.2"),
        ("setup.py", 'setup(install_requires=["torch", "deepspeed<=0.16.3"])\n', "setup.py:1", "0.16.3"),
        ("Dockerfile", "FROM x\nRUN pip install torch \\\n    'deepspeed==0.16.1' && true\n", "Dockerfile:3", "0.16.1"),
        ("requirements.txt", "deepspeed==0.9.5\n", "requirements.txt:1", None),
        ("requirements.txt", "deepspeed>=0.20\n", "requirements.txt:1", None),
        ("configs/requirements.txt", "deepspeed==0.16.9\n", "configs/requirements.txt:1", "0.16.9"),
        ("pyproject.toml", '[tool.poetry.dependencies.deepspeed]\noptional = true\nversion = "^0.16.4"\n', "pyproject.toml:3", "0.16.9"),
        ("requirements.txt", "https://x.y/z/deepspeed-0.16.4+cu124-cp311-cp311-linux_x86_64.whl\n", "requirements.txt:1", "0.16.4"),
        ("requirements.txt", "deepspeed @ https://x.y/deepspeed-0.16.5.tar.gz\n", "requirements.txt:1", "0.16.5"),
        ("Dockerfile", "ARG DS=0.16.1\nRUN pip install deepspeed==${DS}\n", "Dockerfile:2", "0.16.1"),
        ("pixi.toml", '[pypi-dependencies]\ndeepspeed = "==0.17.1"\n', "pixi.toml:2", "0.17.1"),
    ],
)  # fmt: skip
def test_how_people_write_it(project, name, text, place, version):
    required = project(name, text)
    assert (required.place, required.version) == (place, version)


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("pyproject.toml", '[project]\ndependencies = ["deepspeed (>=0.14.2,<0.14.4)"]\n', "0.14.3"),
        ("requirements.txt", "DeepSpeed==0.14.3\n", "0.14.3"),
        ("requirements.txt", "accelerate==1.0.1  # deepspeed==0.14.0 breaks with this\ndeepspeed==0.16.9\n", "0.16.9"),
        ("pyproject.toml", 'description = "needs deepspeed>=0.14,<0.15 on old cards"\ndependencies = ["deepspeed==0.16.9"]\n', "0.16.9"),
        ("requirements.txt", 'deepspeed==0.14.4; sys_platform == "win32"\ndeepspeed==0.17.0; sys_platform == "linux"\n', "0.17.0"),
        ("pyproject.toml", 'dependencies = ["deepspeed==0.16.4; sys_platform == \'linux\'", "x"]\n', "0.16.4"),
        ("environment.yml", "  - deepspeed=0.14\n", "0.14.5"),
        ("environment.yml", "  - deepspeed 0.14.*\n", "0.14.5"),
        ("requirements.txt", "deepspeed==0.15.1+cu121\n", "0.15.1"),
    ],
)  # fmt: skip
def test_what_pip_and_conda_take_it_for(project, name, text, version):
    """packaging 25: names fold case, a local version is a build of its release, markers are of Linux; conda's = is a prefix."""
    assert project(name, text).version == version


def test_a_plain_name_goes_before_others(project, tmp_path):
    (tmp_path / "requirements-old.txt").write_text("deepspeed==0.14.0\n", encoding="utf-8")
    assert project("requirements.txt", "deepspeed==0.17.5\n").version == "0.17.5"


@pytest.mark.parametrize("text", ["deepspeed\n", "my-deepspeed==0.16.9\n", "deepspeed-mii==0.1.0\n", "# deepspeed==0.16.9\n"])
def test_what_asks_for_no_version(project, text):
    assert project("requirements.txt", text) is None


def test_a_lock_goes_before_a_range(project, tmp_path):
    (tmp_path / "uv.lock").write_text('[[package]]\nname = "deepspeed"\nversion = "0.18.2"\n', encoding="utf-8")
    assert project("requirements.txt", "deepspeed>=0.14\n").version == "0.18.2"


def test_the_nearest_folder_goes_before_others(project, tmp_path):
    (tmp_path / "configs" / "requirements.txt").write_text("deepspeed==0.15.1\n", encoding="utf-8")
    assert project("uv.lock", '[[package]]\nname = "deepspeed"\nversion = "0.18.2"\n').version == "0.15.1"


def test_no_further_than_the_project(project, tmp_path, monkeypatch):
    """Where no folder above is a repository's or the current one, the config's own alone is looked at."""
    project("elsewhere/x.txt", "")
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "requirements.txt").write_text("deepspeed==0.16.9\n", encoding="utf-8")
    assert requirement_of("../configs/ds.json") is None
    (tmp_path / ".git").mkdir()
    (tmp_path / "more").mkdir()
    assert requirement_of(str(tmp_path / "more" / "ds.json")).version == "0.16.9"


def test_check_takes_it(project, zeroplan):
    """leaf_module is a key since 0.18.0 (runtime/zero/leaf_module_config.py)."""
    project("requirements.txt", "deepspeed==0.17.6\n")
    ran = zeroplan("check", "configs/ds.json")
    assert "leaf_module is read from DeepSpeed 0.18.0 on: 0.17.6 refuses it" in ran.out
    assert "requirements.txt:1: deepspeed==0.17.6: checked as DeepSpeed 0.17.6" in ran.out
    assert "ZP108" not in zeroplan("check", "configs/ds.json", "--deepspeed", "0.19.8").out


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("requirements.txt", "deepspeed\ntransformers==4.44.2\n", "4.44.2"),
        ("requirements.txt", "transformers>=4.40,<4.45\n", "4.44.0"),
        ("requirements.txt", "transformers>=4.40\n", "5.24.0"),
        ("poetry.lock", '[[package]]\nname = "transformers"\nversion = "5.3.1"\n', "5.3.1"),
    ],
)
def test_transformers_too(project, name, text, version):
    project(name, text)
    assert requirement_of("configs/ds.json", "transformers").version == version


def test_what_an_older_trainer_fills_in(project, zeroplan, tmp_path):
    """hidden 4096: 0.9 · 4096² = 15,099,494.4, of pydantic 2's models no integer; warm-up of 0 steps until 5.18."""
    config = CONFIG.replace('"stage": 2, "leaf_module": {}', '"stage": 3, "stage3_prefetch_bucket_size": "auto"')
    config = config.replace("true}", 'true}, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}', 1)
    (tmp_path / "configs" / "ds.json").write_text(config, encoding="utf-8")
    project("requirements.txt", "transformers==4.44.2\n")
    ran = zeroplan("check", "configs/ds.json", "--model", "llama-3.1-8b", "--for", "hf")
    assert "error ZP814: transformers 4.44.2 fills in 15,099,494.4, and DeepSpeed 0.19.8 stops at that" in ran.out
    assert "warning ZP814: transformers 4.44.2 fills in 0 where no warm-up is stated" in ran.out
    later = zeroplan("check", "configs/ds.json", "--model", "llama-3.1-8b", "--for", "hf", "--transformers", "4.45.0", "--deepspeed", "0.18.3")
    assert "ZP814" not in later.out


def test_what_an_older_accelerate_fills_in(project, zeroplan, tmp_path):
    """_prepare_deepspeed of the releases: int() since 0.31.0, max(1, warm-up of DummyScheduler) since 1.15.0."""
    config = CONFIG.replace('"stage": 2, "leaf_module": {}', '"stage": 3, "stage3_prefetch_bucket_size": "auto"')
    config = config.replace("true}", 'true}, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}', 1)
    (tmp_path / "configs" / "ds.json").write_text(config, encoding="utf-8")
    check = ("check", "configs/ds.json", "--model", "llama-3.1-8b", "--for", "accelerate")
    project("requirements.txt", "accelerate==0.30.1\n")
    ran = zeroplan(*check)
    assert "error ZP814: accelerate 0.30.1 fills in 15,099,494.4, and DeepSpeed 0.19.8 stops at that" in ran.out
    assert "warning ZP814: accelerate 0.30.1 fills in 0 where DummyScheduler is given no warm-up" in ran.out
    between = zeroplan(*check, "--accelerate", "1.14.0")
    assert "15,099,494.4" not in between.out
    assert "warning ZP814: accelerate 1.14.0 fills in 0 where DummyScheduler is given no warm-up" in between.out
    for later in (("--accelerate", "1.15.0"), ("--accelerate", "0.31.0", "--deepspeed", "0.18.3")):
        assert "ZP814" not in zeroplan(*check, *later).out
    assert "--accelerate: found 'new', expected a version; write --accelerate 1.15.0" in zeroplan(*check, "--accelerate", "new").err


def test_a_file_that_pip_reads_there(project, tmp_path):
    (tmp_path / "base.list").write_text("deepspeed==0.16.2\n")
    required = project("requirements.txt", "torch\n-r base.list\n")
    assert (required.place, required.version) == ("base.list:1", "0.16.2")


@pytest.mark.parametrize(
    ("specifiers", "version"),
    [(">=4.41.2,<=4.48.2,!=4.48.0", "4.48.2"), (">=4.41.2,<=4.48.2,!=4.46.*,!=4.47.*,!=4.48.0", "4.48.2"), ("<=4.46.1", "4.46.1"), ("<4.46", "4.45.0")],
)
def test_bounds_that_are_releases(project, specifiers, version):
    """pip install --dry-run of the second: Would install transformers-4.48.2."""
    project("requirements.txt", f"transformers{specifiers}\n")
    assert requirement_of("configs/ds.json", "transformers").version == version


def test_a_file_that_reads_itself(project):
    assert project("requirements.txt", "-r requirements.txt\n") is None


def test_a_file_that_windows_wrote(project, tmp_path):
    (tmp_path / "requirements.txt").write_bytes("deepspeed==0.16.3\r\n".encode("utf-16"))
    assert requirement_of("configs/ds.json").version == "0.16.3"
