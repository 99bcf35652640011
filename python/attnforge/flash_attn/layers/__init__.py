"""The names of flash_attn.layers that attention has to do with."""

from . import rotary

__all__ = ["rotary"]
