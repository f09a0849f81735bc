"""The explorer: all tasks of a model on one HTML page that opens from disk, offline."""

from tasktheme.report.explorer.write import write_explorer

__all__ = ["write_explorer"]
