"""Entry point: one-line errors, exit code 2 for bad input."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; whatever a user can mend becomes one line on standard error."""
    import click

    from zeroplan.cli.app import BAD_INPUT, app
    from zeroplan.errors import ZeroplanError

    try:
        code = app(standalone_mode=False)
    except ZeroplanError as error:
        code = _fail(str(error), BAD_INPUT)
    except click.exceptions.Abort:
        code = _fail("interrupted", 130)
    except click.ClickException as error:
        code = _fail(error.format_message(), BAD_INPUT)
    except BrokenPipeError:
        sys.stderr.close()
        code = 0
    sys.exit(code or 0)


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"zeroplan: {' '.join(message.split())}\n")
    return code


if __name__ == "__main__":
    main()
