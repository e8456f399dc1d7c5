"""One module a command: its options, and the function that runs it, which is imported when it is called."""
