"""The version, which the library must have, too."""

__version__ = "0.1.0"
