"""A Firefox that tests drive over Marionette, the protocol that is built into it."""

import json
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAM = shutil.which("firefox-esr") or shutil.which("firefox")

PREFERENCES = """
user_pref("marionette.port", 0);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("toolkit.telemetry.enabled", false);
user_pref("app.update.enabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("browser.safebrowsing.update.enabled", false);
user_pref("extensions.update.enabled", false);
user_pref("network.proxy.type", 1);
user_pref("network.proxy.http", "127.0.0.1");
user_pref("network.proxy.http_port", 9);
user_pref("network.proxy.ssl", "127.0.0.1");
user_pref("network.proxy.ssl_port", 9);
"""
"""A fresh profile that reaches no network."""


class Firefox:
    """One headless Firefox with a profile of its own."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory()
        (Path(self.profile.name) / "user.js").write_text(PREFERENCES)
        self.process = subprocess.Popen(
            [PROGRAM, "--headless", "--marionette", "--no-remote", "--profile", self.profile.name],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        port = Path(self.profile.name) / "MarionetteActivePort"
        for _ in range(300):
            if port.exists() and port.read_text():
                break
            time.sleep(0.1)
        self.socket = socket.create_connection(("127.0.0.1", int(port.read_text())), timeout=60)
        self.asked = 0
        self._read()  # its greeting
        self.ask("WebDriver:NewSession", {})
        self.ask("WebDriver:SetWindowRect", {"width": 1440, "height": 900})

    def ask(self, command, given):
        self.asked += 1
        data = json.dumps([0, self.asked, command, given]).encode()
        self.socket.sendall(b"%d:%b" % (len(data), data))
        _, _, error, result = self._read()
        if error:
            raise RuntimeError(f"{command}: {error['error']}: {error['message']}")
        return result

    def _read(self):
        size = b""
        while (digit := self.socket.recv(1)) != b":":
            size += digit
        data = b""
        while len(data) < int(size):
            data += self.socket.recv(int(size) - len(data))
        return json.loads(data)

    def open(self, address):
        self.ask("WebDriver:Navigate", {"url": address})

    def value(self, expression):
        """What an expression is in the page."""
        script = f"return JSON.stringify({expression})"
        found = self.ask("WebDriver:ExecuteScript", {"script": script, "args": []})["value"]
        return None if found is None else json.loads(found)

    def click(self, words):
        """Click the first visible button with this text."""
        self.value(
            f"[...document.querySelectorAll('button')].find(one => one.textContent === {json.dumps(words)}"
            " && one.offsetParent).click()"
        )

    def close(self):
        self.socket.close()
        self.process.terminate()
        self.process.wait(timeout=20)
        self.profile.cleanup()
