"""What the bridges refuse, before any of their packages is imported."""

import sys

import pytest
from support import run

import tot_lab as tl


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_tracker_takes_a_sweep(name):
    for given in (run(tl.OneAnswer()), "sweep", None):
        with pytest.raises(
            TypeError, match=rf"track\.{name} expects a Sweep: got {type(given).__name__}\. Was"
        ):
            getattr(tl.track, name)(given)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "localhost:6006",
            "",
            "ftp://me:secret-1@host",
            "http://",
            "/v1/traces",
            "https://h/v1?key=secret-1",
        ),
        "http://h#secret-1",
    ],
)
def test_an_address_must_be_one_of_http_and_is_shown_without_credentials(url):
    with pytest.raises(ValueError, match="url must be the address of a receiver such as") as caught:
        tl.OpenTelemetry(url)
    assert "secret-1" not in str(caught.value)


def test_without_the_package_the_extra_is_named(monkeypatch):
    for name in ("opentelemetry", "opentelemetry.proto"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(
        sys.modules, "opentelemetry.proto.collector.trace.v1.trace_service_pb2", raising=False
    )
    with pytest.raises(ImportError, match=r"pip install 'tot-lab\[otel\]'"):
        tl.OpenTelemetry("http://localhost:6006")
