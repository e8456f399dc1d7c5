"""What commands come to: a function that works it out, and an object with numbers, the screen and `--json`."""
