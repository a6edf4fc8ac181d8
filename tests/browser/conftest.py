"""A browser and a service for each test file, and a new browser context with checks for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browsing import Visit, Watch, launched, opened
from tests.support.served import Served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as program:
        yield program


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    service = Served(tmp_path_factory.mktemp("served"))
    yield service
    service.stop()


@pytest.fixture
def watch(served: Served) -> Watch:
    return Watch(served.url)


@pytest.fixture
def visit(browser: Browser, served: Served, watch: Watch) -> Iterator[Visit]:
    """Open an address of the service in a new browser context; its requests and errors are checked after the test."""
    contexts = []

    def go(path: str = "/", *, phone: bool = False, dark: bool = False, scripts: bool = True) -> Page:
        context = opened(browser, phone=phone, dark=dark, scripts=scripts)
        contexts.append(context)
        watch.over(context)
        page = context.new_page()
        page.goto(served.url + path)
        return page

    yield go
    for context in contexts:
        context.close()
    watch.check()
