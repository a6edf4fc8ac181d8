"""The part of Explore that is loaded later, with invalid parameters."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.support.browsing import Visit


def test_the_part_that_is_loaded_later_refuses_invalid_parameters_with_the_reason(visit: Visit) -> None:
    page = visit("/explore/more?epsilon=1&delta=2")
    expect(page.get_by_role("alert")).to_contain_text("delta")
    part = page.request.get(page.url, headers={"HX-Request": "true"}).text()
    assert part.count('role="alert"') == 1
    assert "delta" in part
