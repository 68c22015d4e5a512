"""What the commands share: the words of their options, messages instead of tracebacks, a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ingestion.names import LONGEST_NAME, LONGEST_REASON, printable, safe_identifier, store_message

if TYPE_CHECKING:
    from ingestion.catalog import Version
    from ingestion.lake import Lake
    from ingestion.spec import SurveySpec
    from ingestion.volume.conversion import Progress

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

LAKE_HELP = "Where surveys are published: a folder, file:///… or s3://bucket/prefix."
SPEC_HELP = "Survey spec (YAML). Default: NAME.yaml or NAME.yml beside NAME.sgy, when it is there."
DIGEST_HELP = "This version only: its digest or the beginning of it."
JSON_HELP = "Print one JSON object instead of text."


def _words(option: str, metavar: str, longest: int, what: str, *, required: bool = True) -> Decorator:
    """An option that refuses what is empty or too long, so that nobody's words are cut."""

    def check(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
        if value is None:
            return None
        said = printable(value.strip())
        if not 1 <= len(said) <= longest:
            raise click.BadParameter(f"{len(said)} characters; expected a few words, at most {longest} characters")
        return said

    return click.option(option, required=required, metavar=metavar, callback=check, help=f"{what}; kept on the lake.")


by_option = _words("--by", "NAME", LONGEST_NAME, "Who decides")
reason_option = _words("--reason", "TEXT", LONGEST_REASON, "Why")
reason_if_any = _words("--reason", "TEXT", LONGEST_REASON, "Why", required=False)


def spec_of(file: str, spec_uri: str | None) -> tuple[SurveySpec, list[str], str | None]:
    """The spec of ``file``, the URIs of all files of its survey, and its name where the spec's file gives it."""
    from ingestion.discover import described

    found = described(file, spec_uri)
    if spec_uri is None and found.spec_uri is not None:
        click.echo(f"using the survey spec {printable(found.spec_uri)}", err=True)
    return found.spec, found.uris, found.name


def no_survey(lake: Lake, lake_uri: str, name: str) -> click.ClickException:
    """What to raise when no survey ``name`` is published."""
    from ingestion.quarantine import reports

    survey, there = safe_identifier(name), f"--lake {printable(lake_uri)}"
    if any(report.survey == survey for report in reports(lake)):
        return click.ClickException(
            f"survey {survey} is held back, so it has no volume; `survey show {survey} {there}`"
        )
    return click.ClickException(
        f"no survey {printable(name)!r} on {printable(lake.uri)}; `survey list {there}` names them"
    )


def in_use(versions: list[Version]) -> list[Version]:
    """What can be in use, first choice first; of a survey that is wholly withdrawn, what was."""
    return [version for version in versions if version.withdrawal is None] or versions


def digest_of(survey: str, digests: Sequence[str], beginning: str) -> str:
    """The one of a survey's ``digests`` that begins so; a message when it is none, or several."""
    meant = [digest for digest in digests if digest.startswith(beginning)]
    if not beginning or len(meant) != 1:
        there = ", ".join(digest[:12] for digest in digests)
        raise click.ClickException(
            f"{len(meant)} versions of survey {survey} begin with {printable(beginning)!r}; there are: {there}"
        )
    return meant[0]


def existing_lake(uri: str) -> Lake:
    """A lake to read from: a folder that is not there is a slip, not an empty lake, and is not made."""
    from ingestion.lake import Lake

    lake = Lake(uri, make=False)
    lake.check()
    return lake


@contextmanager
def messages() -> Iterator[None]:
    """Turns what can go wrong outside the file's content into a message and exit status 1."""
    from obstore.exceptions import BaseError

    from ingestion.lake import LakeError
    from ingestion.spec_yaml import SpecError

    try:
        yield
    except (LakeError, SpecError) as error:
        raise click.ClickException(printable(str(error))) from error
    except (OSError, BaseError) as error:
        raise click.ClickException(printable(store_message(error))) from error


@contextmanager
def progress_bar() -> Iterator[Progress]:
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
