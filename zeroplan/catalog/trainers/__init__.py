"""Training files of other tools: LLaMA-Factory, axolotl, TRL, and TrainingArguments of transformers."""
