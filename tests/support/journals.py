"""A search whose journal is cut off, killed and resumed."""

import tot_lab as tl

SEARCH = tl.TreeOfThoughts(
    propose=tl.Sample(count=2, max_parse_retries=1),
    evaluate=tl.Value(samples=2, max_parse_retries=1),
    stop=tl.Stop(depth=3),
)
