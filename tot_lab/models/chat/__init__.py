"""OpenAI's chat format, which litellm and compatible servers share.

requests.py    from a call to the fields of a request
replies.py     choices, tool calls in pieces, and the removal of keys
served.py      the base class for servers with a URL of their own, such as vLLM
failures.py    errors with an HTTP status
"""
