"""The page at `/` in a real browser: headless Chromium, driven by Selenium, against a real server."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.running import LIMIT, RunningServer
from tests.operate.conftest import LENGTH, Serve, null_model, serve, write_null_model

pytest.importorskip("selenium", reason="needs the package selenium")

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")

__all__ = ["null_model", "serve"]

ROOT_PATH = "/llm"
KEY = "secret"


@pytest.fixture(scope="module")
def server(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Behind a key and a path; a step takes 20 ms, so that there is something to see and to stop."""
    model = write_null_model(tmp_path_factory.mktemp("slow"), step_seconds=0.02)
    engine = {"model": str(model), "max_model_len": LENGTH}
    with serve(engine, api_key=[KEY], root_path=ROOT_PATH) as server:
        server.http.headers["authorization"] = f"Bearer {KEY}"
        yield server


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(server: RunningServer, browser: Any) -> Any:
    """The page, once its key was given."""
    browser.get(f"{server.base}{ROOT_PATH}/")
    until(lambda: browser.find_element(By.ID, "key").is_displayed())
    browser.find_element(By.ID, "key").send_keys(KEY, Keys.ENTER)
    until(lambda: "null" in browser.find_element(By.ID, "summary").text)
    return browser


def until(condition: Callable[[], Any], seconds: float = LIMIT) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


def ask(page: Any, text: str) -> None:
    page.find_element(By.ID, "question").send_keys(text, Keys.ENTER)


def said(page: Any, role: str) -> list[str]:
    return [element.text for element in page.find_elements(By.CSS_SELECTOR, f".message.{role}")]


def shown(page: Any, chart: str) -> str:
    return str(page.execute_script(f"return document.querySelector('#chart-{chart} output').textContent"))


def set_parameter(page: Any, name: str, value: str) -> None:
    details = page.find_element(By.ID, "parameters")
    if details.get_attribute("open") is None:
        details.find_element(By.TAG_NAME, "summary").click()
    field = details.find_element(By.NAME, name)
    field.clear()
    field.send_keys(value)


def test_an_answer_comes_in_pieces_and_can_be_stopped(page: Any, server: RunningServer) -> None:
    set_parameter(page, "max_tokens", "5000")
    ask(page, "w5 w6")
    until(lambda: said(page, "assistant") and len(said(page, "assistant")[0]) > 5)
    early = said(page, "assistant")[0]
    until(lambda: len(said(page, "assistant")[0]) > len(early) + 20)
    until(lambda: shown(page, "requests").startswith("running 1"))
    until(lambda: int(shown(page, "tokens").split()[1]) > 10)
    until(lambda: "–" not in shown(page, "between"))
    page.find_element(By.ID, "stop").click()
    until(lambda: said(page, "assistant")[0].endswith("stopped"))
    server.wait_quiet()
    assert page.find_element(By.ID, "send").is_displayed()
    until(lambda: shown(page, "requests").startswith("running 0"))


def test_a_conversation_goes_on_with_its_parameters(page: Any, server: RunningServer) -> None:
    before = server.metric("prompt_tokens_total")
    set_parameter(page, "max_tokens", "4")
    ask(page, "w7")
    until(lambda: len(said(page, "assistant")) == 2 and "4 tokens" in said(page, "assistant")[1])
    assert "cut at the limit" in said(page, "assistant")[1]
    assert server.metric("prompt_tokens_total") - before > 10  # the first question and its long answer were sent again
    page.find_element(By.ID, "clear").click()
    assert said(page, "user") == []


def test_a_mistake_is_shown_where_the_answer_would_be(page: Any) -> None:
    set_parameter(page, "temperature", "5")
    ask(page, "w8")
    until(lambda: page.find_elements(By.CSS_SELECTOR, ".message.failed"))
    assert "temperature" in said(page, "assistant")[-1]
    page.find_element(By.ID, "clear").click()


def test_what_the_model_writes_is_text_and_not_markup(page: Any) -> None:
    set_parameter(page, "temperature", "0")
    ask(page, "<img src=x onerror=alert(1)>")
    until(lambda: "4 tokens" in said(page, "assistant")[-1])
    assert said(page, "user")[-1] == "<img src=x onerror=alert(1)>"
    assert not page.find_elements(By.CSS_SELECTOR, "#talk img")


def test_charts_ops_and_no_error_in_the_console(page: Any) -> None:
    for chart in ("tokens", "requests", "cache", "first", "between"):
        look = (
            f"return document.querySelector('#chart-{chart} svg path.first').getAttribute('d')"  # redrawn each second
        )
        assert page.execute_script(look).startswith("M")
    page.find_element(By.CSS_SELECTOR, "#platform summary").click()
    assert page.find_element(By.ID, "ops").text
    messages = [entry["message"] for entry in page.get_log("browser") if entry["level"] == "SEVERE"]
    assert [one for one in messages if "401" not in one and "400" not in one] == []
    if folder := os.environ.get("PAGE_SCREENSHOT"):
        page.save_screenshot(str(Path(folder) / "page.png"))


def test_the_page_loads_nothing_from_elsewhere(page: Any, server: RunningServer) -> None:
    names = page.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert len(names) > 5
    assert [name for name in names if not name.startswith(f"{server.base}{ROOT_PATH}/")] == []
