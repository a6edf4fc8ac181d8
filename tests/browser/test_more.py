"""What follows a moment later in Explore, when it cannot."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.support.browsing import Visit


def test_pictures_that_cannot_follow_say_why(visit: Visit) -> None:
    page = visit("/explore/more?epsilon=1&delta=2")
    expect(page.get_by_role("alert")).to_contain_text("delta")
    part = page.request.get(page.url, headers={"HX-Request": "true"}).text()
    assert part.count('role="alert"') == 1
    assert "delta" in part
