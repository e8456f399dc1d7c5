"""Who reads the config that is written."""

TARGETS = ("hf", "deepspeed", "accelerate", "lightning")
"""As --for has them: the Hugging Face Trainer, DeepSpeed itself, Accelerate, Lightning."""
