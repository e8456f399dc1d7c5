"""Emitted files through those who read them: accelerate, transformers' Trainer, Lightning, DeepSpeed's launcher.

Where a package is not installed (`pip install 'zeroplan[verify]'`; Lightning is no part of it) its tests are skipped.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import os
import runpy
import shlex
import types

import pytest
from hypothesis import HealthCheck, given, settings

from tests.emit.plans import GPUS, STRATEGIES, candidate
from tests.emit.strategies import cases
from tests.emit.strategies import job_of as drawn_job
from zeroplan.deepspeed.read import trainer_fills
from zeroplan.deepspeed.write import LEARNING_RATE, ds_config
from zeroplan.emit.folder import write_alone, write_plan
from zeroplan.emit.trainer import training_arguments
from zeroplan.specs.optimizer import OPTIMIZERS

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytestmark = pytest.mark.filterwarnings("ignore")
DRAWS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
BY_SCRIPT = {"optimizer.params.lr": LEARNING_RATE, "optimizer.params.weight_decay": 0}
"""What Accelerator.prepare takes from accelerate.utils.DummyOptim."""
CASES = [(name, gpus) for name in STRATEGIES for gpus in GPUS.values()]


def job_of(name, gpus):
    return candidate(name, gpus).job


def written(name, gpus, target, folder):
    write_plan(candidate(name, gpus), target, str(folder))
    return folder


def for_deepspeed(job):
    """What `--for deepspeed` writes."""
    return without_what_is_off(ds_config(job, "deepspeed"))


def without_what_is_off(config):
    """fp16 and bf16 sections that say no more than that they are off, which is what their absence says."""
    found = copy.deepcopy(config)
    for name in ("fp16", "bf16"):
        if found.get(name) == {"enabled": False}:
            del found[name]
    return found


class TestAccelerate:
    """accelerate's own loader, launcher environment and plugin (accelerate 1.15)."""

    @pytest.fixture(autouse=True)
    def installed(self, monkeypatch):
        for name in ("torch", "accelerate", "transformers", "deepspeed"):
            pytest.importorskip(name)
        for name in [name for name in os.environ if name.startswith("ACCELERATE_")]:
            monkeypatch.delenv(name)

    def launched(self, folder, *more):
        """Arguments as `accelerate launch --config_file` reads them, and the environment it gives each process."""
        launch = importlib.import_module("accelerate.commands.launch")
        typed = ["--config_file", str(folder / "accelerate.yaml"), *more, "train.py"]
        arguments, _defaults, mixed = launch._validate_launch_command(launch.launch_command_parser().parse_args(typed))
        loaded = launch.load_config_from_file(str(folder / "accelerate.yaml"))
        fields = [*loaded.deepspeed_config, *(["mixed_precision"] if mixed else [])]
        arguments.deepspeed_fields_from_accelerate_config = ",".join(fields)
        arguments.main_process_port = 29511
        _command, environment = launch.prepare_deepspeed_cmd_env(arguments)
        return loaded, arguments, environment

    def plugin(self, environment, monkeypatch):
        """The plugin that the environment makes, with its mixed precision set as AcceleratorState does."""
        for name, value in environment.items():
            if name.startswith("ACCELERATE_"):
                monkeypatch.setenv(name, value)
        found = importlib.import_module("accelerate.utils").DeepSpeedPlugin()
        found.set_mixed_precision(environment["ACCELERATE_MIXED_PRECISION"])
        return found

    @pytest.mark.parametrize(("name", "gpus"), CASES)
    def test_the_plugin_holds_what_deepspeed_is_given(self, name, gpus, tmp_path, monkeypatch):
        """With DummyOptim in the script, whose learning rate and weight decay fill two keys."""
        loaded, arguments, environment = self.launched(written(name, gpus, "accelerate", tmp_path / "plan"))
        assert (loaded.num_processes, loaded.num_machines) == (gpus, gpus // 8)
        assert arguments.use_deepspeed
        job = job_of(name, gpus)
        plugin = self.plugin(environment, monkeypatch)
        assert plugin.zero3_init_flag == (job.strategy.stage == 3)
        plugin.deepspeed_config_process(must_match=False, **BY_SCRIPT)
        config = without_what_is_off(plugin.deepspeed_config)
        assert config.pop("steps_per_print") == float("inf")
        assert config == for_deepspeed(job)

    def test_any_strategy_filled_by_the_script(self):
        """DummyOptim's learning rate and weight decay, and nothing else, are filled in."""

        @DRAWS
        @given(cases())
        def check(case):
            job = drawn_job(case)
            config = json.loads(json.dumps(ds_config(job, "accelerate")))
            plugin = importlib.import_module("accelerate.utils").DeepSpeedPlugin(hf_ds_config=config)
            plugin.set_mixed_precision("no")
            plugin.deepspeed_config_process(must_match=False, **BY_SCRIPT)
            found = without_what_is_off(plugin.deepspeed_config)
            assert found.pop("steps_per_print") == float("inf")
            assert found == for_deepspeed(job)

        check()

    @pytest.mark.parametrize(("name", "gpus"), CASES)
    def test_the_config_can_lie_elsewhere(self, name, gpus, tmp_path, monkeypatch):
        """accelerate.sh names ds_config.json by its own folder."""
        folder = written(name, gpus, "accelerate", tmp_path / "plan")
        moved = folder.rename(tmp_path / "moved")
        _loaded, _arguments, environment = self.launched(
            moved, "--deepspeed_config_file", str(moved / "ds_config.json")
        )
        planned = ds_config(job_of(name, gpus), "accelerate")["zero_optimization"]
        assert self.plugin(environment, monkeypatch).deepspeed_config["zero_optimization"] == planned

    def test_a_field_of_the_config_beside_it_is_refused(self, tmp_path, monkeypatch):
        """Why accelerate.yaml has no zero_stage: the plugin stops."""
        folder = written("stage 0", 8, "accelerate", tmp_path / "plan")
        file = folder / "accelerate.yaml"
        file.write_text(file.read_text().replace("  zero3_init", "  zero_stage: 0\n  zero3_init"))
        _loaded, _arguments, environment = self.launched(folder)
        with pytest.raises(ValueError, match="deepspeed_config_file"):
            self.plugin(environment, monkeypatch)

    def test_two_files_without_a_folder(self, tmp_path, monkeypatch):
        """`recommend --for accelerate -o accelerate.yaml` puts ds_config.json beside it."""
        paths = write_alone(job_of("stage 0", 8), "accelerate", str(tmp_path / "accelerate.yaml"))
        assert paths == [str(tmp_path / "accelerate.yaml"), str(tmp_path / "ds_config.json")]
        _loaded, _arguments, environment = self.launched(tmp_path)
        plugin = self.plugin(environment, monkeypatch)
        assert plugin.deepspeed_config["train_batch_size"] == for_deepspeed(job_of("stage 0", 8))["train_batch_size"]

    @pytest.mark.parametrize(("name", "gpus"), CASES)
    def test_the_trainer_under_accelerate_launch(self, name, gpus, tmp_path, monkeypatch):
        """The Trainer takes the plugin's config and stops where its arguments say otherwise: none does."""
        from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

        _loaded, _arguments, environment = self.launched(written(name, gpus, "accelerate", tmp_path / "plan"))
        config = HfTrainerDeepSpeedConfig(copy.deepcopy(self.plugin(environment, monkeypatch).deepspeed_config))
        arguments = real_arguments(name, gpus, monkeypatch, learning_rate=LEARNING_RATE)
        config.trainer_config_process(arguments)
        config.trainer_config_finalize(arguments, shape_of(name, gpus), 100)
        found = without_what_is_off(config.config)
        del found["steps_per_print"]
        assert found == for_deepspeed(job_of(name, gpus))


def shape_of(name, gpus):
    return with_shape_of(job_of(name, gpus))


def with_shape_of(job):
    return types.SimpleNamespace(config=types.SimpleNamespace(hidden_size=job.model.shape.hidden))


def real_arguments(name, gpus, monkeypatch, path=None, **more):
    """TrainingArguments themselves, from training_arguments.json or the plan, as one of the plan's ranks."""
    said = json.loads(path.read_text()) if path else training_arguments(job_of(name, gpus))
    return arguments_of(said, gpus, monkeypatch, **more)


def arguments_of(said, gpus, monkeypatch, **more):
    from transformers import TrainingArguments

    for name_ in ("ACCELERATE_USE_DEEPSPEED", "ACCELERATE_MIXED_PRECISION"):
        monkeypatch.delenv(name_, raising=False)
    config = said.pop("deepspeed", None)
    precisions = {name_: said.pop(name_) for name_ in ("bf16", "fp16") if name_ in said}
    arguments = TrainingArguments(**said, **more, use_cpu=True)
    for name_, value in precisions.items():  # on a machine without a GPU TrainingArguments refuses them
        setattr(arguments, name_, value)
    arguments.deepspeed = config
    monkeypatch.setattr(TrainingArguments, "world_size", gpus)
    return arguments


class TestTrainer:
    """transformers 5.23: HfTrainerDeepSpeedConfig, TrainingArguments, HfArgumentParser."""

    @pytest.fixture(autouse=True)
    def installed(self):
        for name in ("torch", "accelerate", "transformers", "deepspeed"):
            pytest.importorskip(name)

    @pytest.mark.parametrize(("name", "gpus"), CASES)
    def test_filled_by_its_arguments_it_is_what_deepspeed_is_given(self, name, gpus, tmp_path, monkeypatch):
        from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

        folder = written(name, gpus, "hf", tmp_path / "plan")
        arguments = real_arguments(
            name, gpus, monkeypatch, folder / "training_arguments.json", learning_rate=LEARNING_RATE
        )
        assert arguments.deepspeed == str(folder / "ds_config.json")
        config = HfTrainerDeepSpeedConfig(arguments.deepspeed)
        config.trainer_config_process(arguments)
        config.trainer_config_finalize(arguments, shape_of(name, gpus), 100)
        assert without_what_is_off(config.config) == for_deepspeed(job_of(name, gpus))

    def test_any_strategy_filled_by_its_arguments(self, monkeypatch):
        from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

        @DRAWS
        @given(cases())
        def check(case):
            job = drawn_job(case)
            arguments = arguments_of(training_arguments(job), job.ranks, monkeypatch, learning_rate=LEARNING_RATE)
            config = HfTrainerDeepSpeedConfig(json.loads(json.dumps(ds_config(job, "hf"))))
            config.trainer_config_process(arguments)
            config.trainer_config_finalize(arguments, with_shape_of(job), 100)
            assert without_what_is_off(config.config) == for_deepspeed(job)

        check()

    @pytest.mark.parametrize(("name", "gpus"), CASES)
    def test_scripts_and_file_say_the_same_arguments(self, name, gpus, tmp_path):
        """What torchrun.sh appends, through HfArgumentParser, against training_arguments.json."""
        from transformers import HfArgumentParser, TrainingArguments

        folder = written(name, gpus, "hf", tmp_path / "plan")
        text = (folder / "torchrun.sh").read_text().split('"$@"')[-1].replace("$here", str(folder))
        parser = HfArgumentParser(TrainingArguments)
        typed = vars(argparse.ArgumentParser.parse_args(parser, shlex.split(text)))
        said = json.loads((folder / "training_arguments.json").read_text())
        if said.pop("liger_kernel_config", None):
            del said["use_liger_kernel"]
        kept = {key: json.loads(typed[key]) if isinstance(value, dict) else typed[key] for key, value in said.items()}
        assert kept == said


class TestLightning:
    """lightning 2.6: the strategy's own handling of its config."""

    @pytest.fixture(autouse=True)
    def installed(self):
        for name in ("torch", "deepspeed", "lightning"):
            pytest.importorskip(name)

    def formatted(self, folder, monkeypatch):
        """The strategy that `trainer()` makes, after its own formatting, and what the Trainer is told."""
        told = {}
        monkeypatch.setattr("lightning.pytorch.Trainer", lambda **words: told.update(words))
        runpy.run_path(str(folder / "lightning_trainer.py"))["trainer"]()
        from lightning.pytorch.plugins.precision import DeepSpeedPrecision

        strategy = told["strategy"]
        strategy.precision_plugin = DeepSpeedPrecision(told["precision"])
        trainer = types.SimpleNamespace(accumulate_grad_batches=told["accumulate_grad_batches"], gradient_clip_val=None)
        strategy._lightning_module = types.SimpleNamespace(trainer=trainer)
        strategy._init_config_if_needed()
        return strategy, told

    @pytest.mark.parametrize(("name", "gpus"), CASES)
    def test_the_strategy_holds_what_deepspeed_is_given(self, name, gpus, tmp_path, monkeypatch):
        strategy, told = self.formatted(written(name, gpus, "lightning", tmp_path / "plan"), monkeypatch)
        assert strategy.config == for_deepspeed(job_of(name, gpus))
        assert strategy.zero_stage_3 == (job_of(name, gpus).strategy.stage == 3)
        assert told["devices"] * told["num_nodes"] == gpus

    def test_any_strategy_with_its_accumulation(self):
        from lightning.pytorch.strategies import DeepSpeedStrategy

        @DRAWS
        @given(cases())
        def check(case):
            job = drawn_job(case)
            strategy = DeepSpeedStrategy(config=json.loads(json.dumps(ds_config(job, "lightning"))))
            trainer = types.SimpleNamespace(accumulate_grad_batches=job.strategy.grad_accum, gradient_clip_val=None)
            strategy._lightning_module = types.SimpleNamespace(trainer=trainer)
            strategy._format_batch_size_and_grad_accum_config()
            assert strategy.config == for_deepspeed(job)

        check()

    def test_accumulation_in_the_config_is_refused(self, tmp_path, monkeypatch):
        """Why it is left out."""
        folder = written("stage 0", 8, "lightning", tmp_path / "plan")
        (folder / "ds_config.json").write_text(json.dumps(for_deepspeed(job_of("stage 0", 8))))
        with pytest.raises(Exception, match="gradient_accumulation_steps"):
            self.formatted(folder, monkeypatch)


class TestDeepSpeed:
    def test_its_launcher_reads_the_hostfile(self, tmp_path):
        pytest.importorskip("deepspeed")
        from deepspeed.launcher.runner import fetch_hostfile

        folder = written("stage 0", 32, "deepspeed", tmp_path / "plan")
        assert list(fetch_hostfile(str(folder / "hostfile")).values()) == [8] * 4

    def test_its_launcher_reads_the_command(self, tmp_path):
        pytest.importorskip("deepspeed")
        from deepspeed.launcher.runner import parse_args

        folder = written("stage 0", 32, "deepspeed", tmp_path / "plan")
        command = (folder / "deepspeed.sh").read_text().splitlines()[-1].replace('"$@"', "train.py --name x")
        command = command.replace('"${MASTER_PORT:-29500}"', "29500")
        found = parse_args(shlex.split(command)[2:])
        assert (found.num_nodes, found.num_gpus, found.user_script) == (4, 8, "train.py")
        assert found.user_args == ["--name", "x", "--deepspeed", "--deepspeed_config", "$here/ds_config.json"]

    def test_a_script_with_its_own_arguments_reads_them(self, tmp_path):
        """deepspeed.add_config_arguments."""
        deepspeed = pytest.importorskip("deepspeed")
        folder = written("stage 0", 8, "deepspeed", tmp_path / "plan")
        words = shlex.split((folder / "torchrun.sh").read_text().split('"$@"')[-1])
        found = deepspeed.add_config_arguments(argparse.ArgumentParser()).parse_args(words)
        assert (found.deepspeed, found.deepspeed_config) == (True, "$here/ds_config.json")

    def test_any_strategy_is_read(self, monkeypatch):
        """DeepSpeed's parser takes each config and finds the batch, the stage, and what a leaf module is."""
        pytest.importorskip("deepspeed")
        module = importlib.import_module("deepspeed.runtime.config")
        monkeypatch.setattr(module.dist, "get_rank", lambda *_args: 0)

        @DRAWS
        @given(cases())
        def check(case):
            job = drawn_job(case)
            ranks = types.SimpleNamespace(get_data_parallel_world_size=lambda: job.ranks)
            found = module.DeepSpeedConfig(json.loads(json.dumps(ds_config(job, "deepspeed"))), mpu=ranks)
            strategy, zero = job.strategy, found.zero_config
            batch = (found.train_micro_batch_size_per_gpu, found.gradient_accumulation_steps)
            assert batch == (strategy.micro_batch, strategy.grad_accum)
            assert zero.stage == strategy.stage
            if strategy.stage == 3:
                assert zero.zero_hpz_partition_size == strategy.hpz_partition_size
                assert zero.zero_quantized_weights == strategy.quantized_weights
                assert tuple(zero.leaf_module.classes) == tuple(dict.fromkeys(strategy.leaves.classes))
                assert zero.module_granularity_threshold == strategy.leaves.granularity_threshold
            if "aio" in ds_config(job, "deepspeed"):
                assert found.aio_config["queue_depth"] == strategy.aio_queue_depth
                assert found.aio_config["intra_op_parallelism"] == strategy.aio_intra_op_parallelism

        check()

    @pytest.mark.parametrize(("name", "gpus"), CASES)
    def test_leaf_modules_and_the_rest_are_taken(self, name, gpus):
        """The section zero_optimization as DeepSpeed's own class reads it: the key that it would not know stops it."""
        pytest.importorskip("deepspeed")
        from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

        found = DeepSpeedZeroConfig(**for_deepspeed(job_of(name, gpus))["zero_optimization"])
        assert found.zero_hpz_partition_size == job_of(name, gpus).strategy.hpz_partition_size


def test_fills_are_known_for_every_stage():
    """The case list has a plan whose buckets the Trainer fills, and one whose buckets it does not."""
    found = {
        name: trainer_fills(job_of(name, 8).model.shape.hidden, job_of(name, 8).strategy.stage) for name in STRATEGIES
    }
    assert all(found.values())
    assert {OPTIMIZERS[strategy.optimizer].config_type for strategy in STRATEGIES.values()} >= {None, "AdamW", "SGD"}
