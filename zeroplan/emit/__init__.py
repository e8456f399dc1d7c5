"""One plan as the files that run it: they state the same batch, precision, GPUs and ds_config.json."""
