"""The page in a real browser, used as a person would: Debian's Chromium, driven by Playwright.

Skipped, with a reason, where there is no Chromium. Screenshots are kept in
`$SPELLONCE_SCREENSHOTS`, if that is set, and otherwise where pytest keeps its files.
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)"
)

TEXT = "The wug zibbled ba ke lo.\nThe wug ran."
TABS = ("Read", "Write", "Spell", "Explore")
HOSTILE = (
    "<img src=x onerror=\"document.title='hacked'\">",
    "<script>document.title='hacked'</script>",
    "\u202ereversed\u202c \u2066isolate\u2069",
    "nul \x00 bell \x07",
    "𝒻𝒶𝓃𝒸𝓎 👩‍👩‍👧 ﷽ Z̴̢a̷l̶g̸o̵",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """The page. At the end nothing may have gone wrong in it, and nobody else been asked."""
    context = browser.new_context(
        viewport={"width": 1100, "height": 800},
        permissions=["clipboard-read", "clipboard-write"],
        accept_downloads=True,
    )
    found = context.new_page()
    found.set_default_timeout(15_000)
    errors: list[str] = []
    asked: list[str] = []
    found.on("pageerror", lambda error: errors.append(str(error)))
    found.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    found.on("request", lambda request: asked.append(request.url))
    found.goto(address)
    yield found
    context.close()
    assert [error for error in errors if "413" not in error] == []
    assert all(url.startswith((address, "blob:", "data:")) for url in asked)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go."""
    kept = os.environ.get("SPELLONCE_SCREENSHOTS")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def open_tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name).click()
    expect(page.get_by_role("tabpanel", name=name)).to_be_visible()


def read(page: Page, text: str) -> None:
    """Puts a text in, and waits until it is shaded."""
    with page.expect_response(
        lambda r: r.url.endswith("/score") and r.request.post_data_json["text"] == text
    ):
        page.get_by_label("A text", exact=True).fill(text)


def sums(page: Page) -> list[float]:
    return [float(n) for n in re.findall(r"\d+\.\d+", page.locator("#read-sums").inner_text())]


# --- each part, as a person would ---------------------------------------------------------------


def test_read(page: Page, pictures: Path) -> None:
    read(page, TEXT)
    words = page.locator("#read-out .token")
    expect(words).to_have_count(12)
    expect(page.locator("#read-out .novel", has_text="zibbled")).to_have_count(1)
    words.nth(2).hover()
    detail = page.locator("#read-detail")
    expect(detail).to_contain_text("zibbled")
    expect(detail.get_by_role("list", name="Bits of each character").locator("li")).to_have_count(8)
    expect(detail).to_contain_text("its spelling")
    (static,) = sums(page)
    page.get_by_label("Remember words (cache)").check()
    expect(page.locator("#read-sums")).to_contain_text("with the cache")
    again, cached = sums(page)
    assert again == static and cached != static
    page.locator("#read-out .token", has_text="wug").nth(1).hover()
    expect(page.locator("#read-out .token.source")).to_have_text("wug")
    page.screenshot(path=pictures / "read.png")


def test_bits_follow_what_is_typed(page: Page) -> None:
    box = page.get_by_label("A text", exact=True)
    box.fill("")
    expect(page.locator("#read-out .token")).to_have_count(0)
    box.press_sequentially("ba ke", delay=30)
    expect(page.locator("#read-out .token")).to_have_count(2)
    box.press_sequentially(" lo")
    expect(page.locator("#read-out .token")).to_have_count(3)


def test_write(page: Page, pictures: Path) -> None:
    open_tab(page, "Write")
    page.get_by_label("Begin with").fill("The")
    page.get_by_label("Tokens").fill("40")
    page.get_by_role("button", name="Write", exact=True).click()
    words = page.locator("#write-out .token")
    expect(words).to_have_count(40)
    first = words.all_inner_texts()
    words.nth(3).click()
    detail = page.locator("#write-detail")
    expect(detail.get_by_role("list", name="Likeliest words").locator("li").first).to_be_visible()
    expect(detail.get_by_role("list", name="Spellings").locator("li").first).to_be_visible()
    page.screenshot(path=pictures / "write.png")
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    expect(words).to_have_count(40)
    assert words.all_inner_texts() == first, "the same seed writes the same text"


def test_writing_can_be_stopped(page: Page) -> None:
    open_tab(page, "Write")
    page.get_by_label("Tokens").fill("500")
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.locator("#write-out .token").first).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    n = page.locator("#write-out .token").count()
    time.sleep(0.5)
    assert page.locator("#write-out .token").count() == n < 500


def test_spell(page: Page, pictures: Path) -> None:
    open_tab(page, "Spell")
    expect(page.get_by_role("button", name="Copy as a list")).to_be_hidden()
    page.get_by_label("or for a place in a sentence").fill("The ___ ran")
    page.get_by_label("How many").fill("6")
    page.get_by_text("Constraints").click()
    page.get_by_label("Shortest").fill("4")
    page.get_by_role("button", name="Spell", exact=True).click()
    made = page.get_by_role("list", name="Words that were made up").locator("li")
    expect(made).to_have_count(6)
    words = [text.split()[0] for text in made.all_inner_texts()]
    assert all(len(word) >= 4 for word in words) and len(set(words)) == 6
    page.get_by_role("button", name="Copy as a list").click()
    expect(page.locator("#spell-why")).to_have_text("6 words copied.")
    assert page.evaluate("navigator.clipboard.readText()").split() == words
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as CSV").click()
    text = Path(download.value.path()).read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["word"] for row in rows] == words and all(float(row["bits"]) > 0 for row in rows)
    page.screenshot(path=pictures / "spell.png")
    page.get_by_label("Only these letters").fill("q")
    page.get_by_role("button", name="Spell", exact=True).click()
    expect(page.locator("#spell-why")).to_contain_text("No more were found")


def test_explore(page: Page, pictures: Path) -> None:
    open_tab(page, "Explore")
    near = page.locator("#near li")
    expect(near).to_have_count(15)
    inked = "c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size > 9"
    assert page.locator("#map").evaluate(inked), "the map is empty"
    page.get_by_label("A word, known or made up").fill("zibbled")
    page.get_by_role("button", name="Find").click()
    expect(page.locator("#near-title")).to_contain_text("no known word")
    near.first.get_by_role("button").click()
    expect(page.locator("#near-title")).to_contain_text("Used like")
    expect(page.locator("#curve svg path")).to_have_count(2)  # training, and validation
    page.screenshot(path=pictures / "explore.png", full_page=True)


def test_with_the_keyboard_alone(page: Page) -> None:
    read(page, TEXT)
    page.get_by_role("tab", name="Read").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Write")).to_be_focused()
    page.keyboard.press("End")
    expect(page.get_by_role("tabpanel", name="Explore")).to_be_visible()
    page.keyboard.press("Home")
    expect(page.get_by_role("tabpanel", name="Read")).to_be_visible()
    for _ in range(4):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('token')"):
            break
    expect(page.locator("#read-out .token").first).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#read-detail")).to_contain_text("zibbled")


# --- for everybody ------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("tab", TABS)
def test_no_serious_problem_of_accessibility(page: Page, tab: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    open_tab(page, tab)
    if tab == "Read":
        read(page, TEXT)
        page.locator("#read-out .token").nth(2).hover()
    elif tab == "Write":
        page.get_by_role("button", name="Write", exact=True).click()
        expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        page.locator("#write-out .token").first.click()
    elif tab == "Spell":
        page.get_by_label("or for a place in a sentence").fill("The ___ ran")
        page.get_by_role("button", name="Spell", exact=True).click()
        expect(page.locator("#spell-out li").first).to_be_visible()
    else:
        expect(page.locator("#near li").first).to_be_visible()
    page.wait_for_load_state("networkidle")
    found = Axe().run(page).response["violations"]
    assert [v["id"] for v in found if v["impact"] in ("serious", "critical")] == []


def test_the_page_about_the_api_is_accessible(page: Page, address: str) -> None:
    page.goto(f"{address}/static/api.html")
    page.wait_for_load_state("networkidle")
    found = Axe().run(page).response["violations"]
    assert [v["id"] for v in found if v["impact"] in ("serious", "critical")] == []


@pytest.mark.parametrize("width", [360, 760, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits(page: Page, pictures: Path, width: int, scheme: str) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    for tab in TABS:
        open_tab(page, tab)
        page.wait_for_load_state("networkidle")
        page.screenshot(path=pictures / f"{tab.lower()}-{width}-{scheme}.png", full_page=True)
        over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert over <= 0, f"{tab} is {over} pixels too wide at {width}"


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_and_nothing_else(page: Page, text: str) -> None:
    read(page, text)
    page.wait_for_load_state("networkidle")
    assert page.title() == "spellonce"
    assert page.locator("#read-out img, #read-out script").count() == 0
    shown = page.locator("#read-out").evaluate("e => e.textContent")
    assert shown.replace("⏎", "") == text.replace("\x00", "\ufffd") or shown == text


def test_a_megabyte_is_refused_kindly(page: Page) -> None:
    page.evaluate("document.getElementById('read-text').removeAttribute('maxlength')")
    page.get_by_label("A text", exact=True).evaluate("(e) => { e.value = 'a'.repeat(1000000); }")
    with page.expect_response(lambda r: r.url.endswith("/score") and r.status == 413):
        page.locator("#read-form").evaluate("(form) => form.requestSubmit()")
    expect(page.get_by_role("alert")).to_contain_text("at most")
