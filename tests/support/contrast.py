"""Contrast of two colours by the formula of WCAG 2.2."""

import re


def channels(colour):
    """Red, green and blue from 0 to 255, and the opacity, of `#rrggbb`, `rgb(…)` or `rgba(…)`."""
    if colour.startswith("#"):
        return [int(colour[i : i + 2], 16) for i in (1, 3, 5)], 1.0
    found = [float(number) for number in re.findall(r"[\d.]+", colour)]
    return found[:3], found[3] if len(found) > 3 else 1.0


def luminance(shades):
    shares = [shade / 255 for shade in shades]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(colour, paper):
    """Contrast of a colour, which may be translucent, on an opaque background."""
    (above, opacity), (below, _) = channels(colour), channels(paper)
    seen = [a * opacity + b * (1 - opacity) for a, b in zip(above, below, strict=True)]
    low, high = sorted((luminance(seen), luminance(below)))
    return (high + 0.05) / (low + 0.05)
