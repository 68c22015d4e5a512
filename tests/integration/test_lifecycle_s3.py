"""A published survey's life on a real S3 server: many versions, decisions at once, what is left over."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from published import noise, publish
from segy_bytes import draft

from ingestion.catalog import surveys, versions
from ingestion.ingest import ingest
from ingestion.lake import Lake
from ingestion.manifest import manifest_key
from ingestion.sweep import sweep
from ingestion.withdrawal import events, record, withdrawal


def test_decisions_at_once_are_all_kept_one_after_the_other(lake: Lake) -> None:
    publish(lake, "north", noise((8, 8, 8)))
    with ThreadPoolExecutor(8) as people:
        written = list(
            people.map(
                lambda n: record(lake, "withdraw" if n % 2 else "restore", "north", None, by=f"p{n}", reason="x"),
                range(8),
            )
        )
    log = events(lake, "north")
    assert sorted(event.at for event in written) == [event.at for event in log]
    assert len({event.at for event in log}) == 8
    assert (withdrawal(log, None) is not None) == (log[-1].action == "withdraw")


def test_damage_and_withdrawals_hide_no_other_survey(lake: Lake) -> None:
    published = {name: publish(lake, name, noise((8, 8, 8))) for name in ("a", "b", "c", "d")}
    newer = publish(lake, "a", noise((8, 8, 8), seed=1), version=2)
    lake.write(manifest_key("b", published["b"].digest), b"")
    record(lake, "withdraw", "c", None, by="ann", reason="licence ended")
    assert [(m.survey, m.digest) for m in surveys(lake)] == [("a", newer.digest), ("d", published["d"].digest)]
    record(lake, "restore", "a", published["a"].digest, by="ann", reason="better")
    assert [version.digest for version in versions(lake, "a")] == [published["a"].digest, newer.digest]


def test_only_what_nothing_names_is_swept(lake: Lake) -> None:
    kept = publish(lake, "north", noise((20, 20, 20)))
    before = {entry.key for entry in lake.objects()}
    lake.write(f"surveys/north/{'a' * 64}/volume.mdio/amplitude/c/0/0/0", b"12345")
    lake.write(f"{kept.folder}/volume.mdio/amplitude/c/9/9/9", b"123")
    now = datetime.now(UTC)
    assert sweep(lake, now, delete=True) == []
    found = sweep(lake, now + timedelta(days=8), delete=True)
    assert sorted(orphan.size for orphan in found) == [3, 5]
    assert {entry.key for entry in lake.objects()} == before


def test_a_withdrawn_survey_waits_in_incoming(lake: Lake) -> None:
    lake.write("incoming/line.sgy", draft().to_bytes())
    record(lake, "withdraw", "line", None, by="ann", reason="licence ended")
    result = ingest(lake.uri_of("incoming/line.sgy"), lake)
    assert (result.status, [finding.code for finding in result.findings]) == ("held", ["withdrawn"])
    assert not any(lake.objects("surveys"))
