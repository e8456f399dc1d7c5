"""The class of transformers that a config means, and what it is trained for."""

from __future__ import annotations

from inspect import signature
from typing import Any, NamedTuple

import transformers
from transformers.models.auto import modeling_auto

from zeroplan.architectures.heads import REGRESSION, SINGLE, HeadConfig
from zeroplan.architectures.registry import BARE, SEQUENCES, TOKENS
from zeroplan.errors import SpecError, shown
from zeroplan.specs.model import IDS, MASKED_WORD, NEXT_WORD

CAUSAL, MASKED = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
CLASSES = (
    modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
)
"""Where a class is looked for that config.json does not name; then among those that predict masked or next words."""
OTHERS = (
    "ForQuestionAnswering", "ForMultipleChoice", "ForPreTraining", "ForNextSentencePrediction", "DoubleHeadsModel",
)  # fmt: skip
"""Ends of classes that take other labels than words, or more."""
WORDS, SOUND = "input_ids", "input_features"
TYPED = {"gemma3": "token_type_ids", "paligemma": "token_type_ids"}
"""How the input is called that says which words are an image's, of models that ask for it in any case."""
WORD = 7
"""Any that stands for no image and ends no sequence."""
HEARING = ("whisper",)
"""Families whose sound is planned."""


class Task(NamedTuple):
    """What a class is trained for."""

    loss: str
    labels: str
    """One of those that a model's labels are."""
    takes: str = WORDS
    """What transformers calls its main input."""


def class_of(config: Any, place: str) -> Any:
    """The class that the config names, or the first that there is for its family. Raises `SpecError`."""
    named = (config.architectures or [""])[0]
    if named and hasattr(transformers, named):
        return getattr(transformers, named)
    usual = _usual_class(config)
    if usual is None or named:
        other = f", which is not in transformers {transformers.__version__}" if named else ""
        expected = f"a class of transformers with a loss{f', as {usual.__name__}' if usual else ''}"
        raise SpecError(place, f"architectures = {shown(named)}{other}", expected)
    return usual


def _usual_class(config: Any) -> Any:
    """The first that there is for a family."""
    of_words = (CAUSAL, MASKED) if getattr(config, "is_decoder", False) else (MASKED, CAUSAL)
    for names in (*CLASSES, *of_words):
        if known := names.get(config.model_type):
            return getattr(transformers, known if isinstance(known, str) else known[0])
    return None


def task_of(kind: Any, config: Any, place: str) -> Task:
    """By the name of the class. Raises `SpecError` for one that computes no loss, or takes what is not planned."""
    name, takes = kind.__name__, getattr(kind, "main_input_name", WORDS)
    of_images = getattr(config, "vision_config", None) is not None
    if takes != WORDS and not of_images and config.model_type not in HEARING:
        known = f"a model of words, of words and images, or one of {', '.join(HEARING)}"
        raise SpecError(place, f"{name}, a model of {takes}", known)
    for ending in (SEQUENCES, TOKENS):
        if name.endswith(ending):
            problem = REGRESSION if ending == SEQUENCES and config.num_labels == 1 else SINGLE
            head = HeadConfig(config.model_type, ending, problem=problem)
            return Task(head.loss, head.labels_are)
    if name.endswith(BARE) and "labels" not in signature(kind.forward).parameters:
        usual = _usual_class(config)
        raise SpecError(place, f"architectures: {name}", "a class with a loss", usual.__name__ if usual else "")
    if name.endswith(OTHERS):
        expected = f"a class whose labels are words, or one that ends with {SEQUENCES} or {TOKENS}"
        raise SpecError(place, f"architectures: {name}, whose inputs are not planned", expected)
    return Task(MASKED_WORD if "MaskedLM" in name else NEXT_WORD, IDS, SOUND if takes == SOUND else WORDS)
