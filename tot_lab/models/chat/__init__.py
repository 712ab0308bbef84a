"""OpenAI's chat format, which litellm and compatible servers share.

The first three modules below define the format. The others define the endpoints that use it.

    requests.py    from a call to the fields of a request
    replies.py     choices, tool calls in pieces, and the removal of keys
    failures.py    errors with an HTTP status
    about.py       for endpoints: what servers report about themselves
    endpoint.py    the key, and one request with several samples
    served.py      a server with a URL of its own, such as vLLM
"""
