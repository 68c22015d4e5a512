"""The ``survey`` command: look at a SEG-Y file, take it in, see what is published."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import unquote

import click

from ingestion.spec import printable

if TYPE_CHECKING:
    from ingestion.lake import Lake
    from ingestion.manifest import Manifest
    from ingestion.source import Source
    from ingestion.spec import SurveySpec
    from ingestion.volume import Progress

LAKE_HELP = "Where surveys are published: a folder, file:///… or s3://bucket/prefix."
SPEC_HELP = "Survey spec (YAML). Default: NAME.yaml or NAME.yml beside NAME.sgy, when it is there."
JSON_HELP = "Print one JSON object instead of text."


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Bring SEG-Y surveys onto the lake as verified MDIO volumes.

    \b
    survey inspect NAME.sgy                  what is in it; what would hold it back
    survey ingest NAME.sgy --lake s3://LAKE  convert, verify, publish, or hold it back
    survey list --lake s3://LAKE             what is published, what is held back
    survey show NAME --lake s3://LAKE        one survey

    FILE may be a path, file:///… or s3://…; S3 is reached by the usual AWS_* variables (AWS_ENDPOINT_URL for
    a server of your own). A survey that is held back is released by its spec, a small YAML file beside it:

    \b
    name: Block A 2019        inline_byte: 9         sample_format: ieee
    domain: depth             crossline_byte: 21     duplicates: first
    sample_interval: 5        crs: EPSG:23031        drop_traces: [17]

    Exit status: 0 when done, 1 when the survey is held back or something could not be done, 2 for a wrong command.
    """


@main.command()
@click.argument("file")
@click.option("--spec", "spec_uri", metavar="YAML", help=SPEC_HELP)
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
def inspect(file: str, spec_uri: str | None, as_json: bool) -> None:
    """Geometry, axes, formats and ranges of FILE, and what would hold it back. Writes nothing.

    Exit status 1 when it would be held back.
    """
    from ingestion.console import echo_inspection
    from ingestion.inspect import inspect as inspect_sources
    from ingestion.source import SourceChangedError, open_source

    with _messages(), _progress() as progress:
        spec, uris, _ = _spec(file, spec_uri)
        sources = [open_source(uri) for uri in uris]
        total = sum(source.size for source in sources)
        read = 0

        def advance(count: int) -> None:
            nonlocal read
            read += count
            progress("reading", read, total)

        try:
            found = inspect_sources(sources, spec, advance)
        except SourceChangedError as error:
            raise click.ClickException(f"the file changed while it was read: {error}; try again later") from error
    if as_json:
        click.echo(json.dumps(found.summary(), indent=2))
    else:
        echo_inspection(found)
    sys.exit(1 if found.held else 0)


@main.command()
@click.argument("file")
@click.option("--lake", "lake_uri", required=True, metavar="URI", help=LAKE_HELP)
@click.option("--spec", "spec_uri", metavar="YAML", help=SPEC_HELP)
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
def ingest(file: str, lake_uri: str, spec_uri: str | None, as_json: bool) -> None:
    """Convert FILE to MDIO, verify every sample, publish it on the lake; or hold it back with the reasons.

    The same input twice changes nothing. Exit status 1 when the survey is held back.
    """
    from ingestion.console import echo_result
    from ingestion.ingest import ingest as ingest_sources
    from ingestion.lake import Lake

    with _messages(), _progress() as progress:
        spec, uris, name = _spec(file, spec_uri)
        lake = Lake(lake_uri)
        lake.check()
        result = ingest_sources(uris, lake, spec, name=name, progress=progress)
    if as_json:
        click.echo(result.model_dump_json(indent=2))
    else:
        echo_result(lake, result)
    sys.exit(0 if result.status in ("published", "unchanged") else 1)


@main.command("list")
@click.option("--lake", "lake_uri", required=True, metavar="URI", help=LAKE_HELP)
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
def list_surveys(lake_uri: str, as_json: bool) -> None:
    """Published surveys (newest version each), and what is held back."""
    from ingestion.catalog import surveys
    from ingestion.quarantine import reports

    with _messages():
        lake = _existing_lake(lake_uri)
        published, held = surveys(lake), reports(lake)
    newest = {manifest.survey: manifest.created for manifest in published}
    held = [r for r in held if r.survey not in newest or r.created > newest[r.survey]]
    if as_json:
        rows = [_row(manifest) for manifest in published]
        reasons = [report.model_dump(mode="json") for report in held]
        click.echo(json.dumps({"published": rows, "held": reasons}, indent=2))
        return
    for manifest in published:
        shape = " × ".join(map(str, manifest.shape))
        live = f"{manifest.live_share:.0%} live"
        click.echo(f"{manifest.survey:40} {manifest.digest[:12]}  {shape:>18}  {live:>9}  {manifest.domain}")
    for report in held:
        codes = ", ".join(f.code for f in report.findings if f.severity == "hold")
        click.echo(f"{report.survey:40} {report.digest[:12]}  held back: {codes}")
    if not published and not held:
        click.echo(
            f"nothing on {printable(lake.uri)} yet; `survey ingest FILE --lake {printable(lake_uri)}` changes that"
        )


@main.command()
@click.argument("name")
@click.option("--lake", "lake_uri", required=True, metavar="URI", help=LAKE_HELP)
@click.option("--json", "as_json", is_flag=True, help=JSON_HELP)
def show(name: str, lake_uri: str, as_json: bool) -> None:
    """The newest published version of survey NAME, or why it is held back."""
    from ingestion.catalog import digests
    from ingestion.console import echo_findings, echo_manifest
    from ingestion.quarantine import reports
    from ingestion.spec import safe_identifier

    with _messages():
        lake = _existing_lake(lake_uri)
        survey = safe_identifier(name)
        versions = digests(lake, survey)
        held = [report for report in reports(lake) if report.survey == survey]
        if not versions and not held:
            raise click.ClickException(
                f"no survey {printable(name)!r} on {printable(lake.uri)}; "
                f"`survey list --lake {printable(lake_uri)}` names them"
            )
    if as_json:
        newest = versions[-1].model_dump(mode="json") if versions else None
        click.echo(json.dumps({"manifest": newest, "held": [r.model_dump(mode="json") for r in held]}, indent=2))
        return
    if versions:
        echo_manifest(lake, versions[-1], len(versions))
    for report in held:
        click.echo(f"\nheld back by {report.held_by} on {report.created:%Y-%m-%d %H:%M} ({report.digest[:12]}):")
        echo_findings(report.findings, [])


def _spec(file: str, spec_uri: str | None) -> tuple[SurveySpec, list[str], str | None]:
    """The spec of ``file``, the URIs of all files of its survey, and its name where the spec's file gives it."""
    from ingestion.discover import SPEC_SUFFIXES, sibling_uris, spec_text
    from ingestion.lake import split_uri
    from ingestion.source import open_source
    from ingestion.spec import SurveySpec, parse_spec

    if file.startswith("s3://"):
        folder, key = split_uri(file)
        folder.check(key)
    if spec_uri is None:
        open_source(file)  # a wrong name is said before anything else
        stem = file.removesuffix(Path(file).suffix)
        beside = [found for suffix in SPEC_SUFFIXES if (found := _source_if_there(stem + suffix)) is not None]
        if not beside:
            return SurveySpec(), [file], None
        if len(beside) > 1:
            both = " and ".join(printable(found.uri) for found in beside)
            raise click.ClickException(f"both {both} lie beside the file; take one away, or give one with --spec")
        [found] = beside
        click.echo(f"using the survey spec {printable(found.uri)}", err=True)
    else:
        found = open_source(spec_uri)
    spec = parse_spec(spec_text(found.lake, found.lake.head(found.key)), found.uri)
    if spec.files and split_uri(file)[1] not in spec.files:
        raise click.ClickException(
            f"{printable(file)} is not among the files of {printable(found.uri)}; give one of these"
        )
    return spec, sibling_uris(file, spec), Path(found.name).stem if spec.files else None


def _source_if_there(uri: str) -> Source | None:
    from ingestion.source import open_source

    try:
        return open_source(uri)
    except FileNotFoundError:
        return None


def _existing_lake(uri: str) -> Lake:
    """A lake to read from: a folder that is not there is a slip, not an empty lake, and is not made."""
    from ingestion.lake import Lake, LakeError

    path = unquote(uri.removeprefix("file://")) if uri.startswith("file://") else uri
    if "://" not in path and not Path(path).is_dir():
        raise LakeError(f"no folder {path!r}; give the lake that `survey ingest` published to")
    lake = Lake(uri)
    lake.check()
    return lake


@contextmanager
def _messages() -> Iterator[None]:
    """Turns what can go wrong outside the file's content into a message and exit status 1."""
    from obstore.exceptions import BaseError

    from ingestion.lake import LakeError
    from ingestion.spec import SpecError

    try:
        yield
    except (LakeError, SpecError, OSError, BaseError) as error:
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    raise click.ClickException(printable(message.split("\n\nDebug source")[0]))


@contextmanager
def _progress() -> Iterator[Progress]:
    """A progress bar on stderr, gone when done."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    with Bar(console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, int] = {}

        def show_progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)  # type: ignore[arg-type]

        yield show_progress


def _row(manifest: Manifest) -> dict[str, object]:
    return {
        "survey": manifest.survey,
        "digest": manifest.digest,
        "created": manifest.created.isoformat(),
        "shape": manifest.shape,
        "live_share": manifest.live_share,
        "domain": manifest.domain,
    }
