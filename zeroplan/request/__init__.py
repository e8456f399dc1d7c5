"""Options, of the command line or of Python, read into a request: a job of which a part may be open."""
