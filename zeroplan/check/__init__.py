"""What is wrong with a ds_config.json: a reader that keeps places, and rules that look at what it read."""
