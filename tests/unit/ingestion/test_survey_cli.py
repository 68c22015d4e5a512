"""The ``survey`` command: what it prints, what it says of bad input, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from obstore.exceptions import GenericError
from segy_bytes import draft

from ingestion.cli import main
from ingestion.lake import Lake


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.sgy").write_bytes(draft().to_bytes())
    (tmp_path / "bad.sgy").write_bytes(draft().to_bytes()[:-3])
    return tmp_path


def survey(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, [argument.replace("@", str(folder)) for argument in arguments])


def test_inspect_says_what_is_there_and_writes_nothing(folder: Path) -> None:
    before = set(folder.iterdir())
    result = survey(folder, "inspect", "@/good.sgy")
    assert result.exit_code == 0
    assert "6: 100 to 105 step 1 line" in result.stdout
    assert "20: 0 to 76 step 4 ms" in result.stdout
    facts = json.loads(survey(folder, "inspect", "@/good.sgy", "--json").stdout)
    assert facts["would_be"] == "published"
    assert facts["inline"] == {"first": 100, "step": 1, "count": 6, "unit": "line"}
    assert facts["handedness"] == "right"
    assert set(folder.iterdir()) == before


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="a folder that nobody can write to")
def test_a_lake_that_cannot_be_written_is_told_in_one_line(folder: Path) -> None:
    result = survey(folder, "ingest", "@/good.sgy", "--lake", "/sys/kernel")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: Unable to create dir /sys/kernel/surveys")
    assert "Debug source" not in result.stderr
    assert "\n" not in result.stderr.strip()


@pytest.mark.parametrize(
    ("store", "told"),
    [
        (
            "Generic LocalFileSystem error: Unable to copy data to file: No space left on device (os error 28)",
            "Error: Unable to copy data to file: No space left on device (os error 28); make room there",
        ),
        (
            "Generic LocalFileSystem error: Unable to open file /l/x#1: Read-only file system (os error 30)",
            "Error: Unable to open file /l/x#1: Read-only file system (os error 30); name a place that can be",
        ),
        ("Generic S3 error: Server returned 500", "Error: Server returned 500\n"),
    ],
)
def test_what_the_store_says_comes_with_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch, store: str, told: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise GenericError(f"{store}\n\nDebug source:\nGeneric {{\n    store: …\n}}")

    monkeypatch.setattr("obstore.put", refuse)
    result = survey(folder, "ingest", "@/bad.sgy", "--lake", "@/lake")
    assert result.exit_code == 1
    assert result.stderr.startswith(told)
    assert "Debug" not in result.stderr


def test_inspect_of_what_would_be_held_back(folder: Path) -> None:
    result = survey(folder, "inspect", "@/bad.sgy")
    assert result.exit_code == 1
    assert "HELD BACK: truncated" in result.stdout
    assert "upload the whole file" in result.stdout
    facts = json.loads(survey(folder, "inspect", "@/bad.sgy", "--json").stdout)
    assert [finding["code"] for finding in facts["findings"]] == ["truncated"]


def test_ingest_list_and_show(folder: Path) -> None:
    assert "good: published" in survey(folder, "ingest", "@/good.sgy", "--lake", "@/lake").stdout
    again = survey(folder, "ingest", "@/good.sgy", "--lake", "@/lake", "--json")
    assert (again.exit_code, json.loads(again.stdout)["status"]) == (0, "unchanged")
    held = survey(folder, "ingest", "@/bad.sgy", "--lake", "@/lake")
    assert held.exit_code == 1
    assert "report.html" in held.stdout
    listed = survey(folder, "list", "--lake", "@/lake").stdout
    assert "6 × 7 × 20" in listed
    assert "held back: truncated" in listed
    rows = json.loads(survey(folder, "list", "--lake", "@/lake", "--json").stdout)
    assert [row["survey"] for row in rows["published"]] == ["good"]
    assert [report["survey"] for report in rows["held"]] == ["bad"]
    assert "scale" in survey(folder, "show", "good", "--lake", "@/lake").stdout
    assert "truncated" in survey(folder, "show", "bad", "--lake", "@/lake").stdout
    assert (
        json.loads(survey(folder, "show", "good", "--lake", "@/lake", "--json").stdout)["manifest"]["survey"] == "good"
    )


def test_the_spec_beside_the_file_is_used_and_said(folder: Path) -> None:
    (folder / "good.yaml").write_text("domain: depth\nname: In depth\n")
    result = survey(folder, "inspect", "@/good.sgy")
    assert "good.yaml" in result.stderr
    assert "step 4 m" in result.stdout
    (folder / "other.yaml").write_text("sample_interval: 2")
    assert "step 2 ms" in survey(folder, "inspect", "@/good.sgy", "--spec", "@/other.yaml").stdout


@pytest.mark.parametrize("file", ["@/p 2.sgy", "file://@/p%202.sgy"])
def test_a_survey_of_several_files_is_taken_in_by_any_of_them(folder: Path, file: str) -> None:
    (folder / "p%1.sgy").write_bytes(draft().take(slice(21)).to_bytes())
    (folder / "p 2.sgy").write_bytes(draft().take(slice(21, None)).to_bytes())
    (folder / "both.yaml").write_text("files: [p%1.sgy, p 2.sgy]")
    result = survey(folder, "ingest", file, "--spec", "@/both.yaml", "--lake", "@/lake")
    assert "both: published" in result.stdout
    assert "42 traces" in survey(folder, "show", "both", "--lake", "@/lake").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["inspect", "@/nothing.sgy"], "does not exist"),
        (["inspect", "@/no/folder/a.sgy"], "is no file"),
        (["inspect", "@"], "is no file"),
        (["inspect", "@/good.sgy", "--spec", "@/nothing.yaml"], "does not exist"),
        (["inspect", "@/good.sgy", "--spec", "@/wrong.yaml"], "Known fields"),
        (["inspect", "@/good.sgy", "--spec", "@/good.sgy"], "not readable as YAML"),
        (["inspect", "@/good.sgy", "--spec", "@/listing.yaml"], "not among the files"),
        (["ingest", "@/nothing.sgy", "--lake", "@/lake"], "does not exist"),
        (["ingest", "@/good.sgy", "--lake", "gs://bucket"], "expected s3:// or file://"),
        (["ingest", "@/good.sgy", "--lake", "s3://"], "names nothing"),
        (["ingest", "@/good.sgy", "--lake", ""], "names nothing"),
        (["ingest", "@/good.sgy", "--lake", "s3:///prefix"], "names no bucket"),
        (["ingest", "@/good.sgy", "--lake", "/proc/nothing"], "give one that can be written"),
        (["ingest", "@/good.sgy", "--lake", "@/bad.sgy"], "give one that can be written"),
        (["ingest", "@/good.sgy"], "--lake"),
        (["list", "--lake", "@/nolake"], "no folder"),
        (["list", "--lake", "file://@/nolake"], "no folder"),
        (["inspect", "@/\udcff.sgy"], "not UTF-8"),
        (["inspect", "@/twice.sgy"], "give one with --spec"),
        (["show", "nothing", "--lake", "@"], "survey list"),
        (["propose", "@/good.sgy", "@/good.sgy"], "each once"),
        (["unknown"], "No such command"),
    ],
)
def test_bad_input_gets_a_message_and_leaves_nothing(folder: Path, arguments: list[str], said: str) -> None:
    (folder / "wrong.yaml").write_text("inlin_byte: 9")
    (folder / "listing.yaml").write_text("files: [a.sgy]")
    for name in ("twice.sgy", "twice.yaml", "twice.yml"):
        (folder / name).write_bytes(b"")
    before = set(folder.iterdir())
    result = survey(folder, *arguments)
    assert result.exit_code in (1, 2)
    assert said in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.stderr
    assert isinstance(result.exception, SystemExit)
    assert set(folder.iterdir()) == before


def test_the_report_that_is_named_is_there(folder: Path) -> None:
    (folder / "a.json.sgy").write_bytes(b"x")
    said = survey(folder, "ingest", "@/a.json.sgy", "--lake", "@/lake").stdout
    [report] = [line.removeprefix("report: file://") for line in said.splitlines() if line.startswith("report: ")]
    assert Path(report).is_file()


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_signalling_nans_are_counted_without_a_warning(folder: Path) -> None:
    made = draft(code=5)
    made.samples.view(np.uint32)[3, 4] = 0x7FA00000
    (folder / "nan.sgy").write_bytes(made.to_bytes())
    result = survey(folder, "inspect", "@/nan.sgy")
    assert "HELD BACK: non-finite-samples" in result.stdout
    assert "1 NaN" in result.stdout


def test_a_spec_may_be_called_yml(folder: Path) -> None:
    (folder / "good.yml").write_text("domain: depth")
    assert "step 4 m" in survey(folder, "inspect", "@/good.sgy").stdout


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [("http://127.0.0.1:1", "check the bucket, AWS_ENDPOINT_URL"), ("127.0.0.1:1", "expected http://HOST:PORT")],
)
@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "s3://b/a.sgy"],
        ["ingest", "@/good.sgy", "--lake", "s3://b/p"],
        ["list", "--lake", "s3://b/p", "--json"],
        ["show", "a", "--lake", "s3://b/p", "--json"],
    ],
)
def test_a_wrong_endpoint_is_said_after_one_try(
    folder: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str, said: str, arguments: list[str]
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    for name, value in {"ENDPOINT_URL": endpoint, "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "hush"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    result = survey(folder, *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr
    assert "hush" not in result.stderr
    assert "after 10 retries" not in result.stderr


def test_s3_of_aws_needs_no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    assert Lake("s3://bucket/p/").uri_of("a b") == "s3://bucket/p/a b"


def test_no_file_moves_the_terminal(folder: Path) -> None:
    (folder / "\x1b[31mred.sgy").write_bytes(b"x")
    (folder / "good.sgy").write_bytes(draft(ascii_text=True, text="C 1 PSDM \x1b]0;owned\x07 IN DEPTH").to_bytes())
    for arguments in (["inspect", "@/\x1b[31mred.sgy"], ["inspect", "@/good.sgy"], ["show", "\x1b[2J", "--lake", "@"]):
        result = survey(folder, *arguments)
        assert result.exit_code == 1
        assert "\x1b" not in result.stdout + result.stderr


def test_help_teaches(folder: Path) -> None:
    assert "survey ingest NAME.sgy --lake" in survey(folder, "--help").stdout
    for command in ("inspect", "propose", "ingest", "schema", "list", "show"):
        assert survey(folder, command, "--help").exit_code == 0
