from sparkwap import __version__ as version

__all__ = ["version"]
