"""``python -m tasktheme``."""

from tasktheme.cli import main

main()
