"""Every kind of page in a real browser: it opens from a file, offline, whole, without faults or strange markup."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from hostile_cards import HOSTILE as HOSTILE_CARD
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from flows.report import WeekResult, publish
from flows.surveys import SurveyOutcome
from ingestion.ingest import ingest
from ingestion.lake import Lake
from ingestion.manifest import quarantine_folder
from ingestion.synthetic import BASINS, make_survey, write_segy
from validation.checks import validate
from validation.data_docs import data_docs

HOSTILE = "<img src=x onerror=\"document.title='owned'\">'&"
DESKTOP, PHONE = (1400, 900), (420, 800)


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = found("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(found("chromedriver")))
    yield driver
    driver.quit()


def found(program: str) -> str:
    path = shutil.which(program)
    assert path is not None, f"{program} is not installed; apt-get install chromium chromium-driver"
    return path


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A lake with a survey that passed, one that ingestion and one that validation holds back, and a failed week."""
    folder = tmp_path_factory.mktemp("pages")
    lake = Lake(str(folder / "lake"))
    good = make_survey(BASINS["salt_flank"], 5, (40, 44, 64))
    write_segy(good, folder / f"{HOSTILE.replace('/', '')}.sgy")
    write_segy(good, folder / "cut.sgy")
    (folder / "cut.sgy").write_bytes((folder / "cut.sgy").read_bytes()[:-777])
    passed = ingest(str(next(folder.glob("*onerror*.sgy"))), lake)
    held = ingest(str(folder / "cut.sgy"), lake)
    assert (passed.status, held.status) == ("published", "held")
    validate(lake, passed.survey, str(passed.digest))
    outcomes = [
        SurveyOutcome(survey=each.survey, status=status, digest=each.digest, findings=each.findings, report=None)
        for each, status in ((passed, "passed"), (held, "held"))
    ]
    week = WeekResult(
        "2026-W49", outcomes, why_not=f"training r was ended\n{HOSTILE}" + "long" * 200, failed=True,
        metrics=[{"step": step, "loss": 1 / step} for step in range(1, 50)],
    )  # fmt: skip
    publish(lake, week)
    docs = data_docs(lake, folder / "docs")
    root = Path(unquote(lake.uri.removeprefix("file://")))
    return {
        "quarantine": root / quarantine_folder(held.survey, str(held.digest)) / "report.html",
        "data docs": docs,
        "a survey's headers": next(docs.parent.glob("validations/headers/**/*.html")),
        "week": root / "weeks/2026-W49/report.html",
    }


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("name", ["quarantine", "data docs", "a survey's headers", "week"])
def test_a_page_is_whole_offline_and_nobody_elses(
    name: str, size: tuple[int, int], pages: dict[str, Path], browser: webdriver.Chrome, tmp_path: Path
) -> None:
    page = shutil.copy(pages[name], tmp_path / "page.html")  # it needs nothing beside it
    browser.set_window_size(*size)
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(page.as_uri())
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    assert browser.title not in ("", "owned")
    assert browser.find_element(By.TAG_NAME, "body").text.strip()
    assert not browser.find_elements(By.CSS_SELECTOR, "img[onerror]")
    broken = "return [...document.images].filter(i => !(i.complete && i.naturalWidth)).map(i => i.alt)"
    assert browser.execute_script(broken) == []
    wider = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.execute_script(wider) <= 0


@pytest.mark.parametrize("card", ["survey", "training"])
def test_a_card_shows_strangers_words_as_they_are(card: str, browser: webdriver.Chrome, tmp_path: Path) -> None:
    flow = [sys.executable, str(Path(__file__).with_name("hostile_cards.py"))]
    path = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    here = os.environ | {"METAFLOW_DATASTORE_SYSROOT_LOCAL": str(tmp_path), "PYTHONPATH": path}
    for command in ("--no-pylint", "run"), ("card", "get", "start", "card.html", "--id", card):
        subprocess.run([*flow, *command], cwd=tmp_path, env=here, check=True, capture_output=True)
    browser.get((tmp_path / "card.html").as_uri())
    title = browser.title
    wait = WebDriverWait(browser, 60)
    said = wait.until(lambda it: HOSTILE_CARD in (said := it.find_element(By.TAG_NAME, "body").text) and said)
    assert "3/12" in said or card == "survey"
    for link in browser.find_elements(By.TAG_NAME, "a"):
        assert not str(link.get_attribute("href")).startswith(("javascript:", "http://x.y"))
    assert not browser.find_elements(By.CSS_SELECTOR, "img[src^=http], img[src=x]")
    assert browser.title == title
