"""A headless Chromium driven by the WebDriver protocol (W3C), with the standard library alone."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "ArrowDown": "\ue015", "ArrowUp": "\ue013", "End": "\ue010",
        "ArrowRight": "\ue014", "ArrowLeft": "\ue012", "Backspace": "\ue003"}  # fmt: skip
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def why_no_browser() -> str:
    """Why tests cannot use a browser here; empty when they can."""
    if _chromium() is None:
        return "no Chromium is installed"
    return "" if shutil.which("chromedriver") else "no chromedriver is installed"


class Browser:
    """One window."""

    def __init__(self, address: str, session: str) -> None:
        self._url = f"{address}/session/{session}"

    def open(self, page: Path) -> None:
        self._post("url", url=page.resolve().as_uri())

    def resize(self, width: int, height: int = 900) -> None:
        """The size of what a page sees."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def prefer(self, scheme: str) -> None:
        """`light` or `dark`."""
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def command(self, name: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        return self._post("goog/cdp/execute", cmd=name, params=parameters)

    def run(self, script: str, *arguments: Any) -> Any:
        """What the body of a JavaScript function returns."""
        return self._post("execute/sync", script=script, args=list(arguments))

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, wherever the focus is."""
        strokes = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self._post("actions", actions=[{"type": "key", "id": "keyboard", "actions": strokes}])

    def click(self, selector: str) -> None:
        found = self._post("element", using="css selector", value=selector)
        self._post(f"element/{found[_ELEMENT]}/click")

    def choose(self, selector: str, value: str) -> None:
        self.run(
            "const e = document.querySelector(arguments[0]); e.value = arguments[1];"
            "for (const name of ['input', 'change']) e.dispatchEvent(new Event(name, { bubbles: true }));",
            selector,
            value,
        )

    def problems(self) -> list[str]:
        """What the console says of errors."""
        entries = self._post("se/log", type="browser")
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def screenshot(self, file: Path) -> None:
        with urllib.request.urlopen(f"{self._url}/screenshot", timeout=60) as answer:
            file.write_bytes(base64.b64decode(json.load(answer)["value"]))

    def _post(self, path: str, **body: Any) -> Any:
        return _request(f"{self._url}/{path}", body)


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with its profile below the folder; ended, with its driver, when the block is left."""
    port = _free_port()
    driver = subprocess.Popen(
        ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder
    )
    address = f"http://127.0.0.1:{port}"
    options = {
        "binary": _chromium(),
        "args": [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            f"--user-data-dir={folder / 'profile'}",
        ],
    }  # fmt: skip
    capabilities = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
    try:
        _wait_for(address)
        session = _request(f"{address}/session", {"capabilities": {"alwaysMatch": capabilities}})["sessionId"]
        try:
            yield Browser(address, session)
        finally:
            _request(f"{address}/session/{session}", None, "DELETE")
    finally:
        driver.terminate()
        driver.wait(timeout=20)


def _chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(address: str) -> None:
    for _ in range(200):
        try:
            with urllib.request.urlopen(f"{address}/status", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise TimeoutError(f"chromedriver does not answer at {address}")


def _request(url: str, body: Any, method: str = "POST") -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        with error:
            raise RuntimeError(f"{url}: {error.read().decode(errors='replace')[:500]}") from error
