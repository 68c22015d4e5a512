"""The demo: an embedded S3, made surveys, one week; started again, the next week.

    python -m flows.demo [--segy FILE]     (make demo)
    python -m flows.demo --ui              (make ui)

Everything it makes lies in ``.demo/``; removing that folder starts over. While either runs, ``. .demo/env`` lets the
commands of that shell find the demo's lake, registry and jobs.
"""

from __future__ import annotations

import argparse
import datetime as dt
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from flows.launchers.local import LocalLauncher
from flows.training import job_key
from flows.week import iso_week
from ingestion.embedded_s3 import BUCKET, die_with_parent, serve
from ingestion.lake import Lake
from ingestion.synthetic import BASINS, make_survey, write_segy
from validation.data_docs import data_docs

ROOT = Path(".demo").absolute()
PAGES = ROOT / "pages"
FLOWS = Path(__file__).parent
SHAPE = (128, 128, 128)

console = Console()


def main() -> None:
    """Play one week, or serve what the last one left."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--segy", type=Path, metavar="FILE", help="a SEG-Y file of your own, taken in beside the others"
    )
    parser.add_argument("--ui", action="store_true", help="serve the demo's registry and lake instead")
    options = parser.parse_args()
    if options.segy and not options.segy.is_file():
        parser.error(f"SEGY={options.segy} is not a file; expected the path of one SEG-Y file")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    with _alone():
        os.environ.update(_environment())
        if options.ui:
            _serve()
        else:
            _play(options.segy)


def _play(segy: Path | None) -> None:
    try:
        _play_week(segy)
    except KeyboardInterrupt:
        console.print("\ninterrupted, and nothing is left running; the same command goes on with this week")
        raise SystemExit(130) from None
    except subprocess.CalledProcessError as error:
        program = Path(error.cmd[1]).name
        if error.returncode < 0:
            console.print(f"{program} was killed by {signal.Signals(-error.returncode).name}")
            console.print("the same command goes on with this week")
        else:
            console.print(f"{program} ended with exit code {error.returncode}; what it said stands above")
            console.print("mend that, and the same command goes on with this week")
        raise SystemExit(1) from None


def _play_week(segy: Path | None) -> None:
    state = _read_state()
    number = len(state["weeks"]) + 1
    week = iso_week(dt.date.fromisoformat(state["first_day"]) + dt.timedelta(weeks=number - 1))
    console.rule(f"[bold]week {week} (number {number} of this demo)")
    with _lake_served() as lake:
        if number > 1:
            _approve_challenger(lake)
        _drop_surveys(lake, number)
        if segy:
            lake.write(f"incoming/{segy.name}", segy)
            console.print(f"dropped {segy.name}, your own file")
        try:
            _run_flow(lake, week)
        finally:
            _cancel_jobs(lake)
        summary = _fetch_summary(lake, week)
    state["weeks"].append(week)
    (ROOT / "state.json").write_text(json.dumps(state))
    _show(summary)


def _approve_challenger(lake: Lake) -> None:
    """Last week's candidate becomes champion, by the command a reviewer would use."""
    versions = json.loads(_review("list", "--json"))
    if not any("challenger" in each["aliases"] for each in versions):
        console.print("last week left no challenger to approve")
        return
    console.print("$ sfm review approve --by demo", style="bold", markup=False)
    console.print(_review("approve", "--by", "demo", "--lake", lake.uri), markup=False)


def _review(*arguments: str) -> str:
    command = [str(Path(sys.executable).with_name("sfm")), "review", *arguments]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def new_basins(number: int) -> list[str]:
    """Basins that bring a survey in week ``number``, counted from 1: all of them first, then one a week."""
    basins = list(BASINS)
    return basins if number == 1 else [basins[number % len(basins)]]


def make_file(basin: str, number: int, folder: Path) -> Path:
    """The SEG-Y file that ``basin`` brings in week ``number``, made in ``folder``."""
    file = folder / f"{basin}-{number}.sgy"
    write_segy(make_survey(BASINS[basin], seed=number, shape=SHAPE), file)
    return file


def _drop_surveys(lake: Lake, number: int) -> None:
    """The week's new surveys, and in the first week two broken files."""
    chosen = new_basins(number)
    with tempfile.TemporaryDirectory() as scratch:
        for basin in track(chosen, description="making surveys", console=console):
            file = make_file(basin, number, Path(scratch))
            lake.write(f"incoming/{file.name}", file)
        if number == 1:
            whole = (Path(scratch) / f"{chosen[0]}-1.sgy").read_bytes()
            lake.write("incoming/cut-short.sgy", whole[:-777])
            lake.write("incoming/ibm called ieee.sgy", _mislabelled(whole))
    console.print(f"dropped {', '.join(chosen)}" + (" and two broken files" if number == 1 else ""))


def _run_flow(lake: Lake, week: str) -> None:
    subprocess.run(
        [
            sys.executable,
            str(FLOWS / "weekly_retrain.py"),
            "--no-pylint",
            "--config",
            "settings",
            str(FLOWS / "demo.yaml"),
            "run",
            "--max-workers=2",
            "--lake",
            lake.uri,
            "--week",
            week,
        ],
        check=True,
    )


def _mislabelled(segy: bytes) -> bytes:
    """The same bytes with format code 5 (IEEE) where 1 (IBM) is true."""
    return segy[:3224] + (5).to_bytes(2, "big") + segy[3226:]


def _cancel_jobs(lake: Lake) -> None:
    """Leave no training behind when the demo is interrupted."""
    launcher = LocalLauncher()
    for run in lake.folders("runs"):
        launcher.cancel(job_key(lake, run))


def _fetch_summary(lake: Lake, week: str) -> dict[str, Any]:
    """The week's summary, with report and Data Docs copied to where a browser finds them without S3."""
    summary: dict[str, Any] = lake.read_json(f"weeks/{week}/summary.json")
    runs = [entry for entry in lake.objects("runs") if entry.key.endswith("/report.html")]
    for entry in (*lake.objects("weeks"), *lake.objects("quarantine"), *runs):
        target = PAGES / entry.key
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(lake.read(entry.key))
    data_docs(lake, PAGES / "datadocs")
    return summary


def _show(summary: dict[str, Any]) -> None:
    table = Table(title=f"week {summary['week']}", show_header=False)
    for line in summary["lines"]:
        table.add_row(line["name"], line["value"])
    table.add_row("report", str(PAGES / "weeks" / summary["week"] / "report.html"))
    table.add_row("all weeks", str(PAGES / "weeks" / "index.html"))
    table.add_row("Data Docs", str(PAGES / "datadocs" / "index.html"))
    table.add_row("registry and lake", "make ui")
    console.print(table)


def _serve() -> None:
    """Registry and lake, until somebody ends it."""
    uri = os.environ["MLFLOW_TRACKING_URI"]
    if not (ROOT / "mlflow.db").exists():
        console.print("there is no registry yet; run `make demo` first")
        raise SystemExit(1)
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri, "--port", "5000"]
    with (
        _lake_served() as lake,
        subprocess.Popen(command, preexec_fn=partial(die_with_parent, signal.SIGTERM)) as server,
    ):
        console.print(f"soon: the registry at http://127.0.0.1:5000, the lake at {lake.uri}; Ctrl-C ends both")
        console.print(f"to give commands on them, in another shell: . {shlex.quote(str(ROOT / 'env'))}", soft_wrap=True)
        try:
            raise SystemExit(server.wait())
        except KeyboardInterrupt:
            raise SystemExit(130) from None
        finally:
            server.terminate()


@contextmanager
def _lake_served() -> Iterator[Lake]:
    """The demo's lake on the embedded S3; meanwhile ``.demo/env`` says to a shell where everything is."""
    with serve(ROOT / "s3") as variables:
        lake = Lake(f"s3://{BUCKET}/demo")
        here = variables | _environment() | {"SFM_LAKE": lake.uri}
        lines = [f"export {name}={shlex.quote(value)}" for name, value in here.items()]
        programs = shlex.quote(str(Path(sys.executable).parent))
        (ROOT / "env").write_text("\n".join([*lines, f'export PATH={programs}:"$PATH"', ""]))
        try:
            yield lake
        finally:
            (ROOT / "env").unlink(missing_ok=True)


def _environment() -> dict[str, str]:
    return {
        "METAFLOW_USER": os.environ.get("METAFLOW_USER", "demo"),
        "METAFLOW_DATASTORE_SYSROOT_LOCAL": str(ROOT),
        "METAFLOW_CARD_LOCALROOT": str(ROOT / ".metaflow" / "mf.cards"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{ROOT / 'mlflow.db'}",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "GX_ANALYTICS_ENABLED": "false",
        "SFM_JOBS": str(ROOT / "jobs"),
    }


def _read_state() -> dict[str, Any]:
    try:
        return json.loads((ROOT / "state.json").read_text())  # type: ignore[no-any-return]
    except FileNotFoundError:
        state = {"first_day": dt.date.today().isoformat(), "weeks": []}
        (ROOT / "state.json").write_text(json.dumps(state))
        return state


@contextmanager
def _alone() -> Iterator[None]:
    """One demo at a time in this folder; the lock dies with its owner."""
    ROOT.mkdir(exist_ok=True)
    with (ROOT / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print(f"`make demo` or `make ui` is running in {ROOT}; wait for it or end it")
            raise SystemExit(1) from None
        yield


if __name__ == "__main__":
    main()
