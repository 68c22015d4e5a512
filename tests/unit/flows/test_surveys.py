"""What the flows find to do, and the survey that is given by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from published import noise, publish
from segy_bytes import draft

from flows.surveys import Work, failed, find_work, take_in_file
from flows.week import Request
from ingestion.catalog import load_manifest
from ingestion.discover import described
from ingestion.lake import Lake
from ingestion.spec_yaml import SpecError
from ingestion.withdrawal import record


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def waiting(lake: Lake) -> list[str]:
    asked = Request.model_construct(lake=lake.uri, week="2026-W49", surveys=[])
    return [work.survey for work in find_work(asked)]


def test_what_waits_for_a_verdict_is_found_whatever_else_cannot_be_read(lake: Lake) -> None:
    for name in ("north", "south", "west"):
        publish(lake, name, noise((8, 8, 8)), status=None)
    publish(lake, "done", noise((8, 8, 8)))
    lake.write("incoming/new.sgy", draft().to_bytes())
    assert waiting(lake) == ["new", "north", "south", "west"]
    record(lake, "withdraw", "south", None, by="ann", reason="licence ended")
    record(lake, "withdraw", "new", None, by="ann", reason="licence ended")
    assert waiting(lake) == ["north", "west"]
    broken = publish(lake, "broken", noise((8, 8, 8)), status=None)
    lake.write(f"{broken.folder}/manifest.json", b"{")
    assert waiting(lake) == ["broken", "north", "west"]  # its branch fails with what to do, and the others go on


@pytest.mark.parametrize(
    ("error", "found"),
    [
        ("", "the step was killed"),
        ("Traceback …\nFileNotFoundError: no such file", "FileNotFoundError: no such file"),
        (
            "step ingest:\nGenericError: No space left on device\n\nDebug source:\nGeneric {\n}",
            "GenericError: No space left on device; make room there, or name another place, and run it again",
        ),
    ],
)
def test_a_branch_that_broke_says_why_in_one_line(error: str, found: str) -> None:
    [finding] = failed(Work(survey="line", arrival=None, digest=None), error).findings
    assert finding.found == found


def test_the_spec_beside_a_file_is_used_by_the_flow_too(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "line.sgy").write_bytes(draft().to_bytes())
    (tmp_path / "line.yml").write_text("domain: depth\nname: In depth\n")
    found = described(str(tmp_path / "line.sgy"), None)
    assert found.spec_uri == str(tmp_path / "line.yml")
    outcome = take_in_file(lake.uri, found)
    assert outcome.status == "passed"
    assert load_manifest(lake, outcome.survey, str(outcome.digest)).domain == "depth"
    (tmp_path / "line.yaml").write_text("")
    with pytest.raises(SpecError, match="take one away"):
        described(str(tmp_path / "line.sgy"), None)
    assert described(str(tmp_path / "line.sgy"), str(tmp_path / "line.yaml")).spec.domain is None
