"""The `askback` command: questions, answers and what is kept of them, in the terminal."""

import sys

__all__ = ["main"]


def main() -> None:
    """Runs the command line; it ends the process."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ModuleNotFoundError as missing:
        sys.exit(f'askback: {missing.name} is missing; install askback-client with its extra "cli"')
    from askback.cli.app import run_app

    run_app()
