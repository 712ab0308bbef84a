"""Settings: which place is heard, what belongs together, and what cannot be used is named. (D8, D10.)"""

import os
import re
from pathlib import Path

import pytest
from providers import Providers
from support import wait

import tot_lab as tl
from tot_lab.settings import PREFIX

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """A project with a folder in it, and a user's own settings; nothing of this machine's."""
    for name in os.environ:
        if name.startswith((PREFIX, "OPENAI_", "OLLAMA_", "ANTHROPIC_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
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
    assert str(settings.files[0]) in settings.told


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
        ('modle = "x"', "modle: there is no such setting; did you mean 'model'?"),
        ("[research]\nenabeld = true", "research.enabeld: there is no such setting; did you mean 'enabled'?"),
        ("[models.a]\nbase = 1", "models.a.base: there is no such setting; did you mean 'base_url'?"),
        ("[budget]\ncals = 1", "budget.cals: there is no such setting; did you mean 'calls'?"),
        ("[budget]\ncalls = -1", "budget.calls: Input should be greater than or equal to 0"),
        ("context_window = 0", "context_window: Input should be greater than or equal to 1"),
        ('context_window = "8k"', "context_window: Input should be a valid integer"),
        ("[research]\ncap_ratio = 85", "research.cap_ratio: Input should be less than or equal to 1"),
        ('[research]\nenabled = "no"', "research.enabled: Input should be a valid boolean"),
        ('provider = "Open AI"', "provider: String should match pattern"),
        ('base_url = "localhost:8000"', "base_url: expected a URL such as http://localhost:8000/v1"),
        ('base_url = "http://u:sk-1@h/v1"', "base_url: expected a URL"),
        ('api_key = "sk-1"', "api_key: no key stands here; it belongs into an environment variable"),
        ('[models.a]\nopenai_api_key = "sk-1"', "models.a.openai_api_key: no key stands here"),
        ('api_key_env = "sk-1-x"', "api_key_env: expected the name of an environment variable"),
        ("models = 3", "models: Input should be a valid dictionary"),
        ("model = x", "Invalid value (at line 1, column 9)"),
        ("a = " + "[" * 20_000, "too deep"),
    ],
)
def test_what_a_file_cannot_say_is_named_with_file_and_key(text, says, project, tmp_path):
    project(text)
    with pytest.raises(tl.SettingsError) as raised:
        tl.Settings.read()
    said = str(raised.value)
    assert said.startswith(f"{tmp_path / 'project' / 'tot_lab.toml'}: ")
    assert says in said
    assert "sk-1" not in said


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("TOT_LAB_MODLE", "x", "there is no such setting; did you mean 'TOT_LAB_MODEL'?"),
        ("TOT_LAB_API_KEY", "sk-1", "no key stands here"),
        ("TOT_LAB_CONTEXT_WINDOW", "8k", "Input should be a valid integer"),
        ("TOT_LAB_BUDGET_CALLS", "many", "Input should be a valid integer"),
    ],
)
def test_what_the_environment_cannot_say_is_named(name, value, says, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(tl.SettingsError) as raised:
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
        ({"model": "sim/general", "base_url": "http://h/v1"}, "sim/general takes no base_url"),
        ({"provider": "openai", "api_key_env": "NOT_THERE"}, "the environment has no NOT_THERE"),
        ({"provider": "openai", "api_key_env": "sk_1_x"}, "the environment has no variable of that name"),
        (
            {"model": "a", "models": {"a": {"model": "sim/agent"}}, "base_url": "http://h"},
            "base_url cannot stand",
        ),
    ],
)
def test_settings_that_give_no_model(given, says):
    with pytest.raises(tl.SettingsError, match=says):
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
        work, home = server.asked
    assert (work.json["model"], work.key) == ("gpt-4.1-mini", "the-key-of-work")
    assert (home.json["model"], home.json["options"]["num_ctx"]) == ("qwen3:8b", 4096)
    assert "the-key-of-work" not in repr(lab) + repr(tl.Settings.read(model="work"))


def test_the_file_in_the_readme_is_read(project, monkeypatch):
    (text,) = re.findall(r"^```toml\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
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
def test_a_project_names_tools_with_effects_and_only_the_user_allows_them(tmp_path, project, own, tools):
    """A cloned repository must not get a model to run code or to read files by its settings alone."""
    (tmp_path / "project" / "docs").mkdir()
    effect = "process" if "python" in tools else "files"
    project(f'model = "sim/general"\ntools = {tools}\n')
    with pytest.raises(tl.SettingsError, match=f"--allow {effect}"):
        tl.Settings.read().lab(runs=None)
    project(f'model = "sim/general"\ntools = {tools}\nallow = ["{effect}"]\n')
    with pytest.raises(tl.SettingsError, match="a project's file cannot allow"):
        tl.Settings.read()
    project(f'model = "sim/general"\ntools = {tools}\n')
    assert tl.Settings.read(allow=[effect]).lab(runs=None).gateway.toolbox.tools
    own(f'allow = ["{effect}"]\n')
    (tool,) = tl.Settings.read().lab(runs=None).gateway.toolbox.tools.values()
    if effect == "files":
        assert tool.root == str(tmp_path / "project" / "docs")


def test_a_tool_that_does_not_exist_is_named(project):
    project('model = "sim/general"\ntools = ["calculater"]\n')
    with pytest.raises(tl.SettingsError, match=r"tools: .*calculater.*calculator"):
        tl.Settings.read().lab(runs=None)
