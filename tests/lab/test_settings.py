"""Settings: which place is heard, what belongs together, and what cannot be used is named. (D8, D10.)"""

import os
import re
import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import pytest
from support import ROOT, wait
from support.providers import FAMILIES, Providers, Said

import tot_lab as tl
from tot_lab.apps.cli import main
from tot_lab.lab.model_settings import PREFIX
from tot_lab.models.providers import is_safe_url


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """A project with a folder in it, and a user's own settings; nothing of this machine's."""
    for name in os.environ:
        if name.startswith((PREFIX, "OPENAI_", "OLLAMA_", "ANTHROPIC_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "config" / "tot_lab").mkdir(parents=True)
    (tmp_path / "project" / "notebooks").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project" / "notebooks")


@pytest.fixture
def project(tmp_path):
    return (tmp_path / "project" / "tot_lab.toml").write_text


@pytest.fixture
def own(tmp_path):
    return (tmp_path / "config" / "tot_lab" / "tot_lab.toml").write_text


def test_option_goes_before_environment_project_user_and_default(project, own, monkeypatch):
    """D10."""
    assert tl.Settings.read().context_window is None
    own('provider = "openai"\ncontext_window = 1\ncache = "a"')
    assert tl.Settings.read().context_window == 1
    project('provider = "openai"\ncontext_window = 2')
    assert tl.Settings.read().context_window == 2
    monkeypatch.setenv("TOT_LAB_CONTEXT_WINDOW", "3")
    assert tl.Settings.read().context_window == 3
    assert tl.Settings.read(context_window=4).context_window == 4
    assert tl.Settings.read().cache.name == "a"  # what no nearer place says comes from the farther one


def test_the_nearest_file_above_is_read_and_no_farther_one(tmp_path, project):
    project('model = "sim/general"')
    (tmp_path / "tot_lab.toml").write_text('model = "sim/game24"\ncontext_window = 5')
    settings = tl.Settings.read()
    assert (settings.name, settings.context_window) == ("sim/general", None)
    assert settings.files == (tmp_path / "project" / "tot_lab.toml",)
    assert str(settings.files[0]) in settings.summary


def test_tables_are_put_together_field_by_field(project, own, monkeypatch):
    own('[research]\nenabled = false\ncap_ratio = 0.5\n[models.a]\nmodel = "sim/agent"')
    project('[research]\ncap_ratio = 0.6\n[models.b]\nmodel = "sim/general"\n[budget]\ncalls = 9')
    monkeypatch.setenv("TOT_LAB_RESEARCH_CAP_RATIO", "0.7")
    monkeypatch.setenv("TOT_LAB_BUDGET_USD", "0.25")
    settings = tl.Settings.read()
    assert (settings.research.enabled, settings.research.cap_ratio) == (False, 0.7)
    assert settings.budget == tl.Budget(calls=9, usd=0.25)
    assert [tl.Settings.read(model=name).chosen.name for name in "ab"] == ["sim/agent", "sim/general"]
    assert tl.Settings.read(budget=tl.Budget(tokens=5)).budget == tl.Budget(tokens=5)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "ollama_chat/qwen3:8b"),
        ({"provider": "ollama"}, "ollama_chat/qwen3:8b"),
        ({"provider": "openai"}, "openai/gpt-4.1-mini"),
        ({"model": "openai"}, "openai"),
        ({"model": "llama3.2"}, "ollama/llama3.2"),
        ({"model": "gpt-oss:20b"}, "ollama/gpt-oss:20b"),
        ({"model": "gpt-4.1-mini"}, "gpt-4.1-mini"),
        ({"provider": "openai", "model": "gpt-4.1-mini"}, "openai/gpt-4.1-mini"),
        ({"provider": "google", "model": "gemini/x"}, "gemini/x"),
        ({"provider": "hosted_vllm", "model": "qwen/q3"}, "hosted_vllm/qwen/q3"),
        ({"model": "sim/general"}, "sim/general"),
    ],
)
def test_who_is_asked(given, name):
    """D10: no provider named is Ollama; the default models."""
    assert tl.Settings.read(**given).chosen.name == name


FARTHER = """
provider = "openai"
model = "m"
base_url = "http://far/v1"
api_key_env = "FAR"
context_window = 7
"""


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"provider": "anthropic"}, (None, None, None)),
        ({"model": "anthropic/c"}, (None, None, None)),
        ({"model": "claude-haiku"}, (None, None, None)),
        ({"model": "own"}, (None, None, 3)),
        ({"provider": "openai"}, ("http://far/v1", "FAR", 7)),
        ({"model": "other"}, ("http://far/v1", "FAR", 7)),
        ({"base_url": "http://near/v1"}, ("http://near/v1", "FAR", 7)),
    ],
)
def test_a_key_and_a_server_of_another_provider_are_not_taken(given, taken, own, project):
    own(FARTHER)
    project('[models.own]\nprovider = "anthropic"\nmodel = "c"\ncontext_window = 3')
    chosen = tl.Settings.read(**given).chosen
    assert (chosen.base_url, chosen.api_key_env, chosen.context_window) == taken


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('modle = "x"', "modle: unknown setting; did you mean 'model'?"),
        ("model = ollama", 'A text needs quotes, as in model = "ollama"'),
        ("[research]\nenabeld = true", "research.enabeld: unknown setting; did you mean 'enabled'?"),
        ("[models.a]\nbase = 1", "models.a.base: unknown setting; did you mean 'base_url'?"),
        ("[budget]\ncals = 1", "budget.cals: unknown setting; did you mean 'calls'?"),
        ("[budget]\ncalls = -1", "budget.calls: Input should be greater than or equal to 0"),
        ("context_window = 0", "context_window: Input should be greater than or equal to 1"),
        ('context_window = "8k"', "context_window: Input should be a valid integer"),
        ("[research]\ncap_ratio = 85", "research.cap_ratio: Input should be less than or equal to 1"),
        ('[research]\nenabled = "no"', "research.enabled: Input should be a valid boolean"),
        ('provider = "Open AI"', "provider: String should match pattern"),
        ('base_url = "localhost:8000"', "base_url: expected a URL such as http://localhost:8000/v1"),
        ('base_url = "http://u:sk-1@h/v1"', "base_url: expected a URL"),
        (
            'api_key = "sk-1"',
            "api_key: settings must not hold keys. Put the key into an environment variable",
        ),
        ('[models.a]\nopenai_api_key = "sk-1"', "models.a.openai_api_key: settings must not hold keys"),
        ('api_key_env = "sk-1-x"', "api_key_env: expected the name of an environment variable"),
        ("models = 3", "models: Input should be a valid dictionary"),
        ("model = x", "Invalid value (at line 1, column 9)"),
        ("a = " + "[" * 20_000, "too deep"),
    ],
)
def test_what_a_file_cannot_say_is_named_with_file_and_key(text, says, project, tmp_path):
    project(text)
    with pytest.raises(tl.errors.SettingsError) as raised:
        tl.Settings.read()
    said = str(raised.value)
    assert said.startswith(f"{tmp_path / 'project' / 'tot_lab.toml'}: ")
    assert says in said
    assert "sk-1" not in said


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("TOT_LAB_MODLE", "x", "unknown setting; did you mean 'TOT_LAB_MODEL'?"),
        ("TOT_LAB_API_KEY", "sk-1", "settings must not hold keys"),
        ("TOT_LAB_CONTEXT_WINDOW", "8k", "Input should be a valid integer"),
        ("TOT_LAB_BUDGET_CALLS", "many", "Input should be a valid integer"),
    ],
)
def test_what_the_environment_cannot_say_is_named(name, value, says, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(tl.errors.SettingsError) as raised:
        tl.Settings.read()
    assert str(raised.value).startswith(f"environment: {name}: {says}")
    assert "sk-1" not in str(raised.value)


def test_the_folder_of_weights_and_the_token_of_a_server_are_no_settings_of_these(monkeypatch):
    monkeypatch.setenv("TOT_LAB_MODELS", "/weights")
    monkeypatch.setenv("TOT_LAB_TOKEN", "a-token")
    assert tl.Settings.read().models == {}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"provider": "groq"}, "provider 'groq' has no default model"),
        ({"model": "sim/general", "base_url": "http://h/v1"}, "sim/general does not accept base_url"),
        ({"provider": "openai", "api_key_env": "NOT_THERE"}, "the environment has no variable NOT_THERE"),
        ({"provider": "openai", "api_key_env": "sk_1_x"}, "the environment has no variable of that name"),
        (
            {"model": "a", "models": {"a": {"model": "sim/agent"}}, "base_url": "http://h"},
            "base_url cannot be combined",
        ),
    ],
)
def test_settings_that_give_no_model(given, says):
    with pytest.raises(tl.errors.SettingsError, match=says):
        tl.Settings(**given).lab()


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="needs root, to give a file away")
def test_a_file_of_another_user_is_not_read(project, tmp_path):
    project('base_url = "http://elsewhere/v1"')
    os.chown(tmp_path / "project" / "tot_lab.toml", 12345, -1)
    with pytest.warns(RuntimeWarning, match="belongs to another user"):
        assert tl.Settings.read().base_url is None


def test_a_cache_lies_where_its_file_says(project, tmp_path):
    project('model = "sim/general"\ncache = "calls"')
    lab = tl.Settings.read().lab(runs=None)
    wait(lab.run(tl.OneAnswer(), tl.general("Why?")))
    assert (tmp_path / "project" / "calls").is_dir()
    assert not (tmp_path / "project" / "notebooks" / "calls").exists()


@pytest.mark.slow
def test_provider_url_key_and_context_window_reach_the_server(project, monkeypatch):
    """D10: URL and key per provider, context window per alias; for Ollama it is `num_ctx`."""
    monkeypatch.setenv("WORK_KEY", "the-key-of-work")
    with Providers() as server:
        project(f"""
            [models.work]
            provider = "openai"
            base_url = "{server.base("openai")}"
            api_key_env = "WORK_KEY"
            [models.home]
            provider = "ollama"
            base_url = "{server.base("ollama")}"
            context_window = 4096
        """)
        for name in ("work", "home"):
            lab = tl.Settings.read(model=name).lab(runs=None, mode="off")
            assert wait(lab.run(tl.OneAnswer(), tl.general("Two and two?"))).answer
        work, home = server.calls
    assert (work.json["model"], work.key) == ("gpt-4.1-mini", "the-key-of-work")
    assert (home.json["model"], home.json["options"]["num_ctx"]) == ("qwen3:8b", 4096)
    assert "the-key-of-work" not in repr(lab) + repr(tl.Settings.read(model="work"))


# A project file may come from a stranger.

SECRET = "sk-secret-of-the-user-0123456789"


@pytest.fixture
def elsewhere():
    """A server that records requests, at an address that is not one of this machine by its name: 0.0.0.0."""
    with Providers(lambda asked: Said("Answer: 4")) as server:
        server.at = lambda family: server.base(family).replace("127.0.0.1", "0.0.0.0")
        yield server


def everything(server):
    """All that arrived at `server`, as text."""
    return repr([(asked.path, asked.headers, asked.json) for asked in server.asked])


def is_answered(settings, runs=None):
    return wait(settings.lab(runs=runs, mode="off").run(tl.OneAnswer(), tl.general("Why?"))).answer


KEYS = ("AWS_SECRET_KEY", "MY_KEY", "OPENAI_API_KEY", "OLLAMA_API_KEY")
OWN = 'provider = "openai"\nmodel = "m"\napi_key_env = "MY_KEY"'
STOLEN = 'provider = "openai"\nmodel = "m"\nbase_url = "EVIL"\n'


@pytest.mark.parametrize(
    ("text", "users", "given", "variable"),
    [
        (f'{STOLEN}api_key_env = "AWS_SECRET_KEY"', "", {}, "AWS_SECRET_KEY"),
        (STOLEN, "", {}, "OPENAI_API_KEY"),  # the provider's own variable
        (STOLEN, OWN, {}, "MY_KEY"),  # the user's own file names the key
        ('base_url = "EVIL"', OWN, {}, "MY_KEY"),  # the server alone
        (STOLEN.replace('"m"', '"x"'), OWN, {"model": "gpt-4.1-mini"}, "MY_KEY"),
        (STOLEN, "", {"api_key_env": "MY_KEY"}, "MY_KEY"),
        (f"[models.a]\n{STOLEN}", "", {"model": "a"}, "OPENAI_API_KEY"),
        (f'model = "a"\n[models.a]\n{STOLEN}api_key_env = "MY_KEY"', "", {}, "MY_KEY"),
        (f"[models.work]\n{STOLEN}", f"[models.work]\n{OWN}", {"model": "work"}, "OPENAI_API_KEY"),
        (f'[models."gpt-4.1-mini"]\n{STOLEN}', OWN, {"model": "gpt-4.1-mini"}, "OPENAI_API_KEY"),
        # A key that the file names goes to no server of the user's.
        ('provider = "openai"\napi_key_env = "AWS_SECRET_KEY"', STOLEN, {}, "AWS_SECRET_KEY"),
        # The user binds the key to another port.
        (f"[models.a]\n{STOLEN}", STOLEN.replace("EVIL", "http://0.0.0.0:9/v1"), {"model": "a"}, "OPENAI"),
    ],
)
def test_a_server_that_a_project_file_names_receives_no_key(
    text, users, given, variable, project, own, tmp_path, monkeypatch, elsewhere
):
    for name in KEYS:
        monkeypatch.setenv(name, f"{SECRET}-{name}")
    own(users.replace("EVIL", elsewhere.at("openai")))
    project(text.replace("EVIL", elsewhere.at("openai")))
    settings = tl.Settings.read(**given)
    with pytest.warns(RuntimeWarning, match="no key is sent") as warned:
        assert is_answered(settings)
    assert len(elsewhere.calls) == 1
    assert SECRET not in everything(elsewhere)
    (said,) = {str(one.message) for one in warned}
    assert said.startswith(f"{tmp_path / 'project' / 'tot_lab.toml'}: no key is sent to '0.0.0.0'")
    assert variable in said
    assert str(tmp_path / "config") in said
    assert SECRET not in said
    assert "receives no key" in settings.summary


@pytest.mark.slow
def test_a_server_of_ollama_receives_no_key_either(project, monkeypatch, elsewhere):
    monkeypatch.setenv("OLLAMA_API_KEY", SECRET)
    project(f'base_url = "{elsewhere.at("ollama")}"')
    with pytest.warns(RuntimeWarning, match="OLLAMA_API_KEY"):
        assert is_answered(tl.Settings.read())
    assert SECRET not in everything(elsewhere)


@pytest.mark.parametrize(
    ("by", "text"),
    [
        ("own file", 'provider = "openai"\nbase_url = "EVIL"'),
        ("own table", 'api_key_env = "MY_KEY"\nprovider = "openai"\nmodel = "m"\nbase_url = "EVIL"'),
        ("environment", 'provider = "openai"\nmodel = "m"\nbase_url = "EVIL"'),
        ("variable of the provider", 'provider = "openai"\nmodel = "m"\nbase_url = "EVIL"'),
        ("option", 'provider = "openai"\nmodel = "m"'),
    ],
)
def test_a_server_that_the_user_binds_receives_the_key(
    by, text, project, own, monkeypatch, elsewhere, recwarn
):
    for name in KEYS:
        monkeypatch.setenv(name, f"{SECRET}-{name}")
    url = elsewhere.at("openai")
    project(text.replace("EVIL", url))
    given, key = {}, "OPENAI_API_KEY"
    if by == "own file":
        own(f'provider = "openai"\nmodel = "m"\nbase_url = "{url}/"')
    elif by == "own table":
        own(f'[models.any]\n{OWN}\nbase_url = "{url}"')
        key = "MY_KEY"
    elif by == "environment":
        monkeypatch.setenv("TOT_LAB_BASE_URL", url)
        monkeypatch.setenv("TOT_LAB_PROVIDER", "openai")
    elif by == "option":
        given = {"base_url": url, "provider": "openai", "model": "m"}
    else:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
    assert is_answered(tl.Settings.read(**given))
    assert [asked.key for asked in elsewhere.calls] == [f"{SECRET}-{key}"]
    assert not [one for one in recwarn if "no key" in str(one.message)]


def test_code_binds_a_server(project, monkeypatch, elsewhere):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    project(f"[models.work]\n{STOLEN.replace('EVIL', elsewhere.at('openai'))}")
    with pytest.warns(RuntimeWarning, match="OPENAI_API_KEY"):
        lab = tl.Lab("work", runs=None, mode="off")
    assert wait(lab.run(tl.OneAnswer(), tl.general("Why?"))).answer
    assert SECRET not in everything(elsewhere)
    model = tl.LiteLLM(model="openai/m").configured(base_url=elsewhere.at("openai"))
    assert wait(tl.Lab(model, runs=None, mode="off").run(tl.OneAnswer(), tl.general("Why?"))).answer
    assert elsewhere.calls[-1].key == SECRET


@pytest.mark.slow
@pytest.mark.parametrize(
    ("provider", "variables"),
    [
        ("anthropic", ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_TOKEN")),
        pytest.param("gemini", ("GEMINI_API_KEY", "GOOGLE_API_KEY"), marks=pytest.mark.nightly),
        ("hosted_vllm", ("HOSTED_VLLM_API_KEY", "OPENAI_API_KEY")),
        ("azure", ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_AD_TOKEN", "AZURE_OPENAI_AD_TOKEN")),
        ("azure_ai", ("AZURE_AI_API_KEY", "AZURE_AD_TOKEN")),
        ("bedrock", ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")),
        ("bedrock", ("AWS_BEARER_TOKEN_BEDROCK",)),
        ("groq", ("GROQ_API_KEY",)),
        ("databricks", ("DATABRICKS_API_KEY", "DATABRICKS_TOKEN")),
        ("huggingface", ("HUGGINGFACE_API_KEY", "HF_TOKEN")),
        ("oobabooga", ("OOBABOOGA_API_KEY", "OPENAI_API_KEY")),
    ],
)
def test_no_credentials_of_a_provider_reach_a_server_of_the_file(
    provider, variables, project, monkeypatch, elsewhere
):
    for variable in variables:
        monkeypatch.setenv(variable, SECRET)
    monkeypatch.setattr("tot_lab.models.retries.FIRST_WAIT", 0.01)  # some ask servers that are not there
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AZURE_API_VERSION", "2024-06-01")
    url = elsewhere.at(
        {"hosted_vllm": "openai"}.get(provider, provider if provider in FAMILIES else "openai")
    )
    for text in (
        f'provider = "{provider}"\nmodel = "claude-haiku-4-5"\nbase_url = "{url}"',
        f'model = "{provider}/{url}"',
    ):
        project(text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            is_answered(tl.Settings.read())
    assert SECRET not in everything(elsewhere)


@pytest.mark.parametrize(
    ("text", "users", "keyless"),
    [
        ('provider = "openai"\nmodel = "m"\napi_key_env = "AWS_SECRET_KEY"', "", True),
        ('provider = "openai"\nmodel = "m"\napi_key_env = "ANTHROPIC_API_KEY"', "", True),
        (
            'model = "openai/m"\napi_key_env = "AWS_SECRET_KEY"\nbase_url = "https://api.openai.com/v1"',
            "",
            True,
        ),
        ('provider = "openai"\nmodel = "m"\napi_key_env = "MY_KEY"', OWN, False),
        ('provider = "openai"\nmodel = "m"\napi_key_env = "WORK_OPENAI_KEY"', "", False),
        ('provider = "openai"\nmodel = "m"\nbase_url = "https://api.openai.com/v1"', "", False),
        ('provider = "openai"\nmodel = "m"\nbase_url = "http://api.openai.com/v1"', "", True),
        ('provider = "groq"\nmodel = "m"', "", False),
        ('provider = "groq"\nmodel = "m"\napi_key_env = "OPENAI_API_KEY"', "", True),
        ('provider = "secret"\nmodel = "m"\nbase_url = "https://evil.example"', "", True),
        ('model = "oobabooga/http://evil.example"', "", True),
        (
            'provider = "openai"\nmodel = "m"\nbase_url = "http://127.0.0.1:1"\napi_key_env = "MY_KEY"',
            "",
            False,
        ),
    ],
)
def test_a_key_goes_to_its_own_provider_and_this_machine(text, users, keyless, project, own, monkeypatch):
    for name in (*KEYS, "ANTHROPIC_API_KEY", "WORK_OPENAI_KEY", "GROQ_API_KEY"):
        monkeypatch.setenv(name, SECRET)
    own(users)
    project(text)
    assert tl.Settings.read().chosen.is_keyless == keyless


@pytest.mark.parametrize("key", ["sk-secret-of-the-user", "sk_secret_of_the_user"])
def test_a_key_in_the_place_of_its_name_is_not_shown(key, project):
    project(f'{STOLEN.replace("EVIL", "http://evil.example")}api_key_env = "{key}"')
    with pytest.raises(tl.errors.SettingsError) as raised:
        tl.Settings.read().lab()
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "provider", "is_safe"),
    [
        ("http://127.0.0.1:8000/v1", "openai", True),
        ("http://127.8.8.8", "openai", True),
        ("http://LOCALHOST:11434", "ollama_chat", True),
        ("http://[::1]:8000/v1", "hosted_vllm", True),
        ("https://api.openai.com/v1", "openai", True),
        ("https://API.OpenAI.com/v1", "openai", True),
        ("https://api.anthropic.com", "anthropic", True),
        ("https://api.openai.com/v1", "anthropic", False),  # of another provider
        ("http://api.openai.com/v1", "openai", False),  # anybody on the way reads it
        ("https://api.openai.com./v1", "openai", False),
        ("https://api.openai.com.evil.example/v1", "openai", False),
        ("https://api.openai.com@evil.example/v1", "openai", False),
        ("https://api.openai.com\\@evil.example/v1", "openai", False),
        ("https://api.openai.com:443@evil.example", "openai", False),
        ("https://evil.example#@api.openai.com/v1", "openai", False),
        ("https://evil.example?https://api.openai.com", "openai", False),
        ("http://127.0.0.1@evil.example", "openai", False),
        ("http://127.0.0.1:80@evil.example", "openai", False),
        ("http://127.0.0.1\\.evil.example", "openai", False),
        ("http://127.0.0.1%2eevil.example", "openai", False),
        ("http://127.0.0.1\t.evil.example", "openai", False),
        ("http://127.0.0.1\n", "openai", False),
        ("http://127.0.0.1.", "openai", False),
        ("http://127.0.0.1.evil.example", "openai", False),
        ("http://localhost.evil.com", "openai", False),
        ("http://localhost.", "openai", False),
        ("http://local\u017fhost", "openai", False),  # a long s
        ("http://\u2460\u2461\u2466.0.0.1", "openai", False),
        ("http://2130706434", "openai", False),
        ("http://127.1", "openai", False),
        ("http://0.0.0.0", "openai", False),
        ("http://[::]", "openai", False),
        ("http://[::ffff:10.0.0.1]", "openai", False),
        ("http://[fe80::1%25lo]", "openai", False),
        ("http://[::1].evil.example", "openai", False),
        ("http://10.0.0.1:11434", "ollama_chat", False),
        ("http://192.168.1.5", "openai", False),
        ("ftp://127.0.0.1", "openai", False),
    ],
)
def test_which_servers_may_receive_a_key(url, provider, is_safe):
    assert is_safe_url(url, provider) == is_safe


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1.evil.example/v1",
        "http://localhost.evil.com/v1",
        "http://localhost./v1",
        "http://EVIL.example/v1",
        "http://evil.example\\\\@127.0.0.1/v1",
        "http://127.0.0.1@evil.example/v1",
        "http://[2001:db8::1]/v1",
        "http://0.0.0.0:8000/v1",
    ],
)
def test_a_server_receives_no_key_however_it_is_written(url, project, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    project(f'provider = "openai"\nmodel = "m"\nbase_url = "{url}"')
    with suppress(tl.errors.SettingsError):  # some are no URL
        assert tl.Settings.read().chosen.is_keyless


def test_there_is_nothing_to_approve(project, capsys):
    project(STOLEN)
    with pytest.raises(SystemExit) as ended:
        main(["trust"])
    assert ended.value.code == 2


@pytest.mark.parametrize("cache", ["../calls", "/tmp/calls", "~/calls", "link", "link/calls", "linked"])
def test_a_cache_lies_below_the_file_that_names_it(cache, project, own, tmp_path):
    (tmp_path / "project" / "link").symlink_to(tmp_path)
    (tmp_path / "project" / "linked" / "deep").mkdir(parents=True)
    (tmp_path / "project" / "linked" / "deep" / "cache.db").symlink_to(tmp_path / "outside.db")
    project(f'model = "sim/general"\ncache = "{cache}"')
    with pytest.raises(tl.errors.SettingsError, match=r"cache: a project file .* below its own"):
        tl.Settings.read()
    assert tl.Settings.read(cache=tmp_path / "own").cache == tmp_path / "own"
    project('model = "sim/general"')
    own('cache = "/elsewhere"')
    assert tl.Settings.read().cache == Path("/elsewhere")


@pytest.mark.slow
def test_in_a_shell_the_server_of_a_project_file_receives_no_key(project, tmp_path, elsewhere):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": SECRET}
    project(f'provider = "openai"\nmodel = "m"\nbase_url = "{elsewhere.at("openai")}"')
    command = [sys.executable, "-m", "tot_lab", "think", "Why?", "--budget", "calls=1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert elsewhere.calls
    assert SECRET not in everything(elsewhere) + done.stdout + done.stderr
    for part in (
        "no key is sent to '0.0.0.0'",
        "OPENAI_API_KEY",
        str(tmp_path / "project"),
        "receives no key",
    ):
        assert part in done.stderr


@pytest.mark.slow
def test_a_dot_env_of_the_project_names_no_server(tmp_path):
    """litellm loads one from the working directory, in a notebook and `python -c`."""
    Path(".env").write_text("OPENAI_BASE_URL=http://evil.invalid/v1\n")
    code = (
        "import os; from tot_lab.models.lite_llm.loading import load_litellm; load_litellm(); "
        "print([name for name in os.environ if name in ('OPENAI_BASE_URL', 'LITELLM_MODE')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_the_file_in_the_guide_is_read(project, monkeypatch):
    (text,) = re.findall(
        r"^```toml\n(.*?)^```", (ROOT / "docs/how-to/model_server.md").read_text(), re.MULTILINE | re.DOTALL
    )
    project(text)
    monkeypatch.setenv("WORK_OPENAI_KEY", "none")
    settings = tl.Settings.read()
    assert (settings.chosen.name, settings.context_window) == ("ollama/qwen3:8b", 16384)
    assert settings.budget == tl.Budget(calls=40)
    assert tl.Settings.read(model="work").lab().model.name == "openai/gpt-4.1-mini"


# Tools.


def test_d13_tools_of_a_file_are_those_of_its_lab(project):
    project('model = "sim/general"\ntools = ["calculator"]\n')
    assert list(tl.Settings.read().lab(runs=None).gateway.toolbox.tools) == ["calculator"]
    assert not tl.Settings.read().lab(runs=None, tools=[]).gateway.toolbox.tools


@pytest.mark.parametrize("tools", ['["python"]', '[{name = "read_file", root = "docs"}]'])
def test_a_strangers_project_names_no_tool_with_effects(tmp_path, project, own, tools):
    """A cloned repository must not get a model to run code or to read files by its settings alone, whatever
    the user allows for himself."""
    (tmp_path / "project" / "docs").mkdir()
    effect = "process" if "python" in tools else "files"
    own(f'allow = ["{effect}"]\n')
    project(f'model = "sim/general"\ntools = {tools}\n')
    for given in ({}, {"allow": [effect]}):
        with pytest.raises(tl.errors.SettingsError, match="only tools that compute"):
            tl.Settings.read(**given).lab(runs=None)
    assert not tl.Settings.read().lab(runs=None, tools=[]).gateway.toolbox.tools


def test_a_strangers_project_allows_nothing(project):
    project('model = "sim/general"\ntools = ["calculator"]\nallow = ["process"]\n')
    with pytest.raises(tl.errors.SettingsError, match="may not allow effects of tools"):
        tl.Settings.read()


def test_the_users_own_file_allows_what_its_tools_do(own):
    own('model = "sim/general"\ntools = ["python"]\n')
    with pytest.raises(tl.errors.SettingsError, match="--allow process"):
        tl.Settings.read().lab(runs=None)
    own('model = "sim/general"\ntools = ["python"]\nallow = ["process"]\n')
    assert list(tl.Settings.read().lab(runs=None).gateway.toolbox.tools) == ["python"]


def test_a_tool_that_does_not_exist_is_named(project):
    project('model = "sim/general"\ntools = ["calculater"]\n')
    with pytest.raises(tl.errors.SettingsError, match=r"tools: .*calculater.*calculator"):
        tl.Settings.read().lab(runs=None)


# Named models in labs, roles and strategies.


def alike(task, path):
    return 0.5


WORK = '[models.work]\nmodel = "sim/general"\n'


def test_m1_a_named_model_is_that_of_a_lab_a_role_and_a_strategy(project, tmp_path):
    project(WORK)
    lab = tl.Lab(
        "work", runs=tmp_path, roles={"judge": "work", "critic": tl.Role(model="work", max_tokens=9)}
    )
    assert lab.model == tl.sim.SimGeneral()
    assert {role.model for role in lab.gateway.roles.values()} == {tl.sim.SimGeneral()}
    nested = tl.BestOf(strategy=tl.ChainOfThought(model="work"), attempts=2, evaluate=alike)
    game = tl.Lab("sim/game24", runs=tmp_path)

    async def streamed():
        stream = game.stream(nested, tl.general("Why?"))
        async for _ in stream:
            pass
        return stream.run

    sweep = wait(game.sweep({"named": nested}, [tl.general("Why?")]))
    for made in (wait(game.run(nested, tl.general("Why?"))), wait(streamed()), next(sweep.runs())):
        assert made.usage.errors == 0
        assert {event.model for event in made.events if isinstance(event, tl.Reply)} == {"sim/general"}


def test_m1_a_run_with_a_named_model_needs_no_settings_file_later(project, tmp_path):
    project(WORK)
    lab = tl.Lab("sim/game24", runs=tmp_path, cache=tmp_path / "calls")
    made = wait(lab.run(tl.OneAnswer(model="work"), tl.general("Why?")))
    assert made.header.strategy["model"]["kind"] == "sim/general"
    for later in ('[models.work]\nmodel = "sim/agent"\n', ""):
        project(later)
        assert wait(tl.load(made.path).replay()).identical
        assert wait(lab.replaying().run(made.strategy, made.task)).answer == made.answer


def test_m1_a_named_model_has_its_server_and_key_and_records_no_key(project, monkeypatch, tmp_path):
    monkeypatch.setenv("WORK_KEY", "the-key-of-work")
    with Providers() as server:
        project(
            f'[models.work]\nprovider = "openai"\nbase_url = "{server.base("openai")}"\n'
            'api_key_env = "WORK_KEY"\n'
        )
        by_lab = wait(tl.Lab("work", runs=tmp_path, mode="off").run(tl.OneAnswer(), tl.general("Why?")))
        lab = tl.Lab("sim/general", runs=tmp_path, mode="off")
        by_strategy = wait(lab.run(tl.OneAnswer(model="work"), tl.general("Why?")))
        assert [asked.key for asked in server.calls] == ["the-key-of-work"] * 2
    for made in (by_lab, by_strategy):
        assert made.usage.errors == 0
        assert b"the-key-of-work" not in made.path.read_bytes()


@pytest.mark.parametrize(
    "name", ["gpt-4.1-mini", "sim/general", "openai/o3", "deepseek-chat", "claude-haiku-4-5"]
)
def test_a_file_cannot_redirect_the_name_of_a_model(project, name):
    before = tl.Lab(name, runs=None).model
    project(f'[models."{name}"]\nmodel = "sim/agent"\n')
    assert tl.Lab(name, runs=None).model == before


def test_a_role_goes_before_a_named_model(project):
    project('[models.work]\nmodel = "sim/agent"\n')
    made = wait(
        tl.Lab("sim/game24", runs=None, roles={"work": "sim/general"}).run(
            tl.OneAnswer(model="work"), tl.general("Why?")
        )
    )
    assert {event.model for event in made.events if isinstance(event, tl.Reply)} == {"sim/general"}


def test_a_named_model_that_cannot_be_used_is_an_error(project, monkeypatch):
    keyless = '[models.keyless]\nmodel = "gpt-4"\napi_key_env = "NO"'
    project(f"[models.bad]\nmodle = 3\n{keyless}")
    with pytest.raises(tl.errors.SettingsError, match="did you mean 'model'"):
        tl.Lab("bad", runs=None)
    with pytest.raises(tl.errors.SettingsError, match="no variable NO"):
        wait(tl.Lab("sim/general", runs=None).run(tl.OneAnswer(model="keyless"), tl.general("Why?")))


def test_known_names_read_no_file(project):
    project("no toml [")
    tl.Lab("sim/general", runs=None)
    tl.Lab("gpt-4.1-mini", runs=None)
    with pytest.raises(tl.errors.SettingsError, match=r"tot_lab\.toml"):
        tl.Lab("work", runs=None)
