"""The lab of a session, made from its settings."""

from __future__ import annotations

from typing import Any

from tot_lab.lab.lab import Lab
from tot_lab.lab.settings import Settings


def lab(settings: Settings, **more: Any) -> Lab:
    """Return a lab with `settings`. `more` are arguments of `tl.Lab` that replace them."""
    equipment = {} if "tools" in more else settings.equipment()
    return Lab(settings.chosen.endpoint(), **{"cache": settings.cache, **equipment, **more})
