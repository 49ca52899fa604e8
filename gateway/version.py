"""The version of what is installed."""

from importlib.metadata import PackageNotFoundError, version


def _installed() -> str:
    try:
        return version("packhorse")
    except PackageNotFoundError:
        return "0+unknown"


VERSION = _installed()
