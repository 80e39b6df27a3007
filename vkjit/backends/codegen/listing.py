"""Generated code as text, for `Kernel.inspect`."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Listing"]


class Listing(NamedTuple):
    """Generated code in one of its forms.

    `name` identifies the form, `kind` is its language (one of `api.inspection.KINDS`), `title` a heading for people,
    in which `{device}` stands for the device's name.
    """

    name: str
    kind: str
    title: str
    text: str
