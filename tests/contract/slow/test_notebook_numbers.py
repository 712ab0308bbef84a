"""Figures in notebooks are compared to ten digits: more differ between processors, fewer hide changes."""

import base64
import math

import numpy as np
from support.notebook_numbers import rounded


def packed(*numbers):
    array = np.array(numbers, dtype="f8")
    return {"bdata": base64.b64encode(array.tobytes()).decode(), "dtype": "f8"}


def figure(number):
    return {"data": [{"y": packed(number, math.nan), "width": number, "name": "a", "n": 3}]}


def test_the_last_digits_of_a_number_do_not_matter_and_the_others_do():
    one = 0.035421061234567
    assert rounded(figure(one)) == rounded(figure(math.nextafter(one, 1)))
    assert rounded(figure(one)) != rounded(figure(one * (1 + 1e-9)))
    assert rounded(figure(one)) != rounded({"data": [{**figure(one)["data"][0], "name": "b"}]})
