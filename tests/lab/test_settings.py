"""Settings: which place is heard, what belongs together, and what cannot be used is named. (D8, D10.)"""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT, wait
from support.providers import Providers, Said

import tot_lab as tl
from tot_lab.apps.cli import main
from tot_lab.lab.places import PREFIX
from tot_lab.lab.settings import approve_project_file
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


def test_a_folder_of_weights_is_no_setting_of_these(monkeypatch):
    monkeypatch.setenv("TOT_LAB_MODELS", "/weights")
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
def no_network(monkeypatch):
    """Every look-up and every connection fails the test."""
    tried = []

    def refused(*given, **more):
        tried.append(given)
        raise OSError("no network in this test")

    for name in ("getaddrinfo", "gethostbyname", "create_connection"):
        monkeypatch.setattr(socket, name, refused)
    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refused)
    yield
    assert not tried


OWN = 'provider = "openai"\nmodel = "m"\napi_key_env = "MY_KEY"'
STOLEN = 'provider = "openai"\nmodel = "m"\nbase_url = "https://evil.example/v1"\n'


@pytest.mark.parametrize(
    ("text", "users", "given", "variable"),
    [
        (f'{STOLEN}api_key_env = "AWS_SECRET_KEY"', "", {}, "AWS_SECRET_KEY"),
        (STOLEN, "", {}, "OPENAI_API_KEY"),  # the provider's own variable
        (STOLEN, OWN, {}, "MY_KEY"),  # the user's own file names the key
        ('base_url = "https://evil.example"', OWN, {}, "MY_KEY"),  # the server alone
        ('base_url = "https://evil.example"', "", {}, "OLLAMA_API_KEY"),
        (STOLEN.replace('"m"', '"x"'), OWN, {"model": "gpt-4.1-mini"}, "MY_KEY"),
        (STOLEN, "", {"api_key_env": "MY_KEY"}, "MY_KEY"),
        (f"[models.a]\n{STOLEN}", "", {"model": "a"}, "OPENAI_API_KEY"),
        (f'model = "a"\n[models.a]\n{STOLEN}api_key_env = "MY_KEY"', "", {}, "MY_KEY"),
        (f"[models.work]\n{STOLEN}", f"[models.work]\n{OWN}", {"model": "work"}, "OPENAI_API_KEY"),
        (f'[models."gpt-4.1-mini"]\n{STOLEN}', OWN, {"model": "gpt-4.1-mini"}, "OPENAI_API_KEY"),
        # A key that the file names goes to no server of the user's.
        (
            'provider = "openai"\napi_key_env = "AWS_SECRET_KEY"',
            'provider = "openai"\nbase_url = "https://evil.example/v1"',
            {},
            "AWS_SECRET_KEY",
        ),
    ],
)
def test_an_unapproved_project_file_sends_no_key_to_a_server_of_its_choice(
    text, users, given, variable, project, own, tmp_path, monkeypatch, no_network
):
    for name in ("AWS_SECRET_KEY", "MY_KEY", "OPENAI_API_KEY", "OLLAMA_API_KEY"):
        monkeypatch.setenv(name, SECRET)
    own(users)
    project(text)
    with pytest.raises(tl.errors.SettingsError) as raised:
        tl.Settings.read(**given).lab()
    file = tmp_path / "project" / "tot_lab.toml"
    said = str(raised.value)
    assert said.startswith(f"{file}: ")
    assert "'evil.example'" in said
    assert variable in said
    assert f"tot-lab trust {file}" in said
    assert SECRET not in said
    if not given:
        with pytest.raises(tl.errors.SettingsError, match="tot-lab trust"):
            wait(tl.think("Why?"))
    main(["trust", str(file)])
    assert "evil.example" in str(tl.Settings.read(**given).chosen.base_url)


def test_a_key_of_the_file_goes_to_no_server_of_the_environment(project, monkeypatch, no_network):
    monkeypatch.setenv("OPENAI_BASE_URL", "https://proxy.example/v1")
    project('provider = "openai"\nmodel = "m"')
    assert tl.Settings.read().lab().model.base_url == "https://proxy.example/v1"  # both are the user's
    project('provider = "openai"\nmodel = "m"\napi_key_env = "AWS_SECRET_KEY"')
    with pytest.raises(tl.errors.SettingsError, match=r"proxy.example.*AWS_SECRET_KEY"):
        tl.Settings.read()


@pytest.mark.parametrize("key", ["sk-secret-of-the-user", "sk_secret_of_the_user"])
def test_a_key_in_the_place_of_its_name_is_not_shown(key, project):
    project(f'{STOLEN}api_key_env = "{key}"')
    with pytest.raises(tl.errors.SettingsError) as raised:
        tl.Settings.read()
    assert "secret" not in str(raised.value)


def test_what_is_not_asked_stops_nobody(project, no_network):
    """A file with a server for one model can be used unapproved for the others."""
    project(f'model = "sim/general"\n[models.cluster]\n{STOLEN}')
    settings = tl.Settings.read()
    assert settings.lab().model.kind == "sim/general"
    with pytest.raises(tl.errors.SettingsError, match=r"models.cluster.base_url: .*tot-lab trust"):
        settings.models["cluster"].endpoint()
    project(STOLEN)
    assert tl.Settings.read(model="sim/general").lab().model.kind == "sim/general"


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
def test_which_servers_need_no_approval(url, provider, is_safe):
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
def test_a_server_is_refused_however_it_is_written(url, project, no_network):
    project(f'provider = "openai"\nmodel = "m"\nbase_url = "{url}"')
    with pytest.raises(tl.errors.SettingsError):
        tl.Settings.read()


def test_an_approval_is_of_one_file_at_one_place_as_it_is(project, tmp_path, capsys, no_network):
    file = tmp_path / "project" / "tot_lab.toml"
    project(STOLEN)
    assert main(["trust"]) == 0  # the nearest, from a folder below it
    assert capsys.readouterr().out == (
        f"{file} is approved in its current version. It names:\n  base_url = 'https://evil.example/v1'\n"
    )
    assert tl.Settings.read().base_url == "https://evil.example/v1"
    project(STOLEN + "# and more")
    with pytest.raises(tl.errors.SettingsError, match="tot-lab trust"):
        tl.Settings.read()
    project(STOLEN)
    assert tl.Settings.read().base_url == "https://evil.example/v1"
    (tmp_path / "other").mkdir()
    shutil.copy(file, tmp_path / "other")
    with pytest.raises(tl.errors.SettingsError, match="other"):
        tl.Settings.read(tmp_path / "other")
    file.rename(tmp_path / "approved.toml")
    (tmp_path / "evil.toml").write_text(STOLEN.replace("evil", "worse"))
    file.symlink_to(tmp_path / "evil.toml")
    with pytest.raises(tl.errors.SettingsError, match=r"worse\.example"):
        tl.Settings.read()
    assert main(["trust", str(file)]) == 0
    assert tl.Settings.read().base_url == "https://worse.example/v1"
    (tmp_path / "other" / "tot_lab.toml").unlink()
    (tmp_path / "other" / "tot_lab.toml").symlink_to(file)
    with pytest.raises(tl.errors.SettingsError, match="other"):
        tl.Settings.read(tmp_path / "other")


def test_only_a_file_that_would_be_read_can_be_approved(project, tmp_path, capsys):
    assert main(["trust"]) == 2
    assert "No tot_lab.toml found in this folder or above it" in capsys.readouterr().err
    project('modle = "x"')
    assert main(["trust"]) == 2
    assert "did you mean 'model'?" in capsys.readouterr().err
    (tmp_path / "other.toml").write_text("")
    assert main(["trust", str(tmp_path / "other.toml")]) == 2
    assert main(["trust", str(tmp_path / "none" / "tot_lab.toml")]) == 1
    assert "No such file" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_the_users_own_places_need_no_approval(own, project, monkeypatch, no_network):
    project('[models.a]\nmodel = "sim/agent"')
    own(f'{STOLEN}cache = "/elsewhere"')
    assert tl.Settings.read().lab().model.base_url == "https://evil.example/v1"
    monkeypatch.setenv("TOT_LAB_BASE_URL", "https://mine.example/v1")
    assert tl.Settings.read().base_url == "https://mine.example/v1"
    assert tl.Settings.read(base_url="https://given.example/v1").base_url == "https://given.example/v1"


@pytest.mark.parametrize("cache", ["../calls", "/tmp/calls", "~/calls", "link", "link/calls"])
def test_a_cache_lies_below_the_file_that_names_it_unless_that_is_approved(cache, project, tmp_path):
    (tmp_path / "project" / "link").symlink_to(tmp_path)
    project(f'model = "sim/general"\ncache = "{cache}"')
    with pytest.raises(tl.errors.SettingsError, match=r"cache: this project file .*tot-lab trust"):
        tl.Settings.read()
    assert tl.Settings.read(cache=tmp_path / "own").cache == tmp_path / "own"
    main(["trust"])
    assert tl.Settings.read().cache is not None


@pytest.mark.slow
def test_in_a_shell_an_unapproved_file_is_refused_before_anything_is_sent(project, tmp_path):
    """A real process and a real server: the proxy of the environment would carry a request there."""
    with Providers(Said("42")) as proxy:
        environment = {
            **os.environ,
            **{"PYTHONPATH": str(ROOT), "OPENAI_API_KEY": SECRET},
            **{"HTTP_PROXY": proxy.url, "http_proxy": proxy.url},
        }

        def think():
            command = [sys.executable, "-m", "tot_lab", "think", "Why?", "--budget", "calls=1"]
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

        project('provider = "openai"\nmodel = "m"\nbase_url = "http://evil.invalid/v1"')
        done = think()
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        for part in ("'evil.invalid'", "OPENAI_API_KEY", f"tot-lab trust {tmp_path / 'project'}"):
            assert part in done.stderr
        assert SECRET not in done.stdout + done.stderr
        assert not proxy.asked


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
        with pytest.raises(tl.errors.SettingsError, match=r"only tools that compute.*tot-lab trust"):
            tl.Settings.read(**given).lab(runs=None)
    assert not tl.Settings.read().lab(runs=None, tools=[]).gateway.toolbox.tools
    file = tmp_path / "project" / "tot_lab.toml"
    assert any(line.startswith("tools = ") for line in approve_project_file(file))
    (tool,) = tl.Settings.read().lab(runs=None).gateway.toolbox.tools.values()
    if effect == "files":
        assert tool.root == str(tmp_path / "project" / "docs")


def test_a_strangers_project_allows_nothing_and_names_no_server_in_a_model(project):
    project('model = "sim/general"\ntools = ["calculator"]\nallow = ["process"]\n')
    with pytest.raises(tl.errors.SettingsError, match=r"may not allow what tools do.*tot-lab trust"):
        tl.Settings.read()
    project('model = "oobabooga/http://evil.example"\n')
    with pytest.raises(tl.errors.SettingsError, match=r"may not name a server.*tot-lab trust"):
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
    project(f"[models.stolen]\n{STOLEN}[models.bad]\nmodle = 3\n{keyless}")
    with pytest.raises(tl.errors.SettingsError, match=r"models\.stolen\..*tot-lab trust"):
        tl.Lab("stolen", runs=None)
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
