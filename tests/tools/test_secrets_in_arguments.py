"""No secret of the lab or of its environment leaves in the arguments of a tool with effects."""

import base64
from urllib.parse import quote

import pytest
from support.errands import changed, counted, lab_with, result, results

import tot_lab as tl
from tot_lab.core.scrubbing import holds_secret

KEY = "sk-Ab3dE6gH9jK2mN5pQ8sT1vX4zB7cF0hL"
SHORT = "t1de&s4lt"


@tl.tool(effects=("network",), retries=0)
def send(text: str) -> str:
    """Sends a text."""
    SENT.append(text)
    return "sent"


SENT = []


@pytest.fixture(autouse=True)
def _none_sent(monkeypatch):
    SENT.clear()
    for name, value in (("HARBOUR_API_KEY", KEY), ("HARBOUR_PASSWORD", SHORT)):
        monkeypatch.setenv(name, value)


WRITTEN = {
    "as it is": f"the key is {KEY}.",
    "short": SHORT,
    "in a URL": f"https://a.example/?k={quote(KEY)}&p={quote(SHORT)}",
    "each byte for a URL": "".join(f"%{byte:02x}" for byte in SHORT.encode()),
    "twice": quote(quote(SHORT)),
    "base64": base64.b64encode(f"key: {KEY}".encode()).decode(),
    "hexadecimal": KEY.encode().hex(),
    "a host name": f"{KEY.lower()}.evil.example",
    "spelt": " ".join(KEY),
    "one half": KEY[:17],
    "the other half": KEY[16:],
}


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_a_call_with_a_secret_is_refused_and_recorded(text):
    (said,) = results(lab_with(send), ("send", {"text": text}))
    assert said.startswith("✗ the arguments hold a secret")
    assert KEY not in said
    assert not SENT


@pytest.mark.parametrize(
    "text",
    [
        "How are passwords of the harbour kept?",
        "the tide and the salt",
        "sk- is how such keys begin",
        KEY[:12],
        "100 % of %41ll, a+b",
        "x" * 1000,
    ],
)
def test_other_texts_leave(text):
    assert result(send, {"text": text}) == "sent"
    assert [text] == SENT


def test_the_keys_of_models_and_of_the_context_are_secrets_too(monkeypatch):
    monkeypatch.delenv("HARBOUR_API_KEY")
    model = tl.OpenAICompatible(model="m", base_url="http://127.0.0.1:9", api_key=KEY)
    lab = lab_with(send, roles={"evaluate": model}, tool_context={"harbour": {"password": "gr4vel-and-sand"}})
    for text in (KEY, "gr4vel-and-sand"):
        (said,) = results(lab, ("send", {"text": text}))
        assert said.startswith("✗ the arguments hold a secret")
    assert SENT == []


def test_of_which_tools():
    """Those with effects, declared or not. One that only computes sends nothing."""
    unknown = changed(send, effects=None)
    assert result(unknown, {"text": KEY}).startswith("✗ the arguments hold a secret")
    assert result(changed(send, effects=("model",)), {"text": KEY}) == "sent"
    assert result(changed(send, effects=()), {"text": KEY}) == "sent"
    assert result(counted, {"a": 1}) == "1"


def test_a_policy_can_allow_it():
    for policy, said in (
        (tl.EffectPolicy(allow={"network", "secrets"}), "sent"),
        (tl.EffectPolicy(mode="allow_all", allow={"secrets"}), "sent"),
        (tl.EffectPolicy(mode="allow_all"), "✗ the arguments hold a secret"),
        (tl.EffectPolicy(allow={"network", "secrets"}, deny={"secrets"}), "✗ the arguments hold a secret"),
    ):
        assert result(send, {"text": KEY}, effect_policy=policy).startswith(said)


def test_a_path_and_a_short_word_are_no_secrets(monkeypatch):
    monkeypatch.setenv("SERVER_KEY", "/etc/harbour/server.key")
    monkeypatch.setenv("CI_TOKEN", "harbour")
    assert not holds_secret("read /etc/harbour/server.key of the harbour")
    assert not holds_secret("the EMPTY box", "EMPTY")
