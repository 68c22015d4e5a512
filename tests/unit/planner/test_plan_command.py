"""``sfm plan`` as it is typed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from seismic_model.cli import main
from seismic_model.planner.assumptions import DEFAULT

ASKED = ("--model", "1.8b", "--window", "1536x1536x2048", "--gpus", "128")


def plan(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["plan", *arguments])


def said(*arguments: str) -> dict[str, Any]:
    result = plan(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)  # type: ignore[no-any-return]


def test_json_has_all_that_was_asked_for() -> None:
    found = said(*ASKED, "--samples", "1000", "--price-per-gpu-hour", "2")
    assert found["tokens"]["whole"] == 1_179_648
    assert found["parameters"]["total"] == pytest.approx(1.76e9, rel=0.01)
    assert found["layout"]["dp"] * found["layout"]["cp"] == 128
    memory = found["memory_per_gpu"]
    parts = sum(size for part, size in memory.items() if part not in ("total", "usable"))
    assert parts == memory["total"] <= memory["usable"]
    data_set = found["data_set"]
    assert data_set["days"] == pytest.approx(1000 / found["step"]["samples_per_second"] / 86400)
    assert data_set["price_usd"] == pytest.approx(data_set["days"] * 24 * 128 * 2)
    assert all(each["source"] for each in found["assumptions"].values())


def test_text_says_the_layout_the_parts_and_the_sources() -> None:
    output = plan(*ASKED, "--strategy", "zero2").output
    assert "1,179,648 tokens" in output
    assert "zero2" in output
    assert "head and loss" in output
    assert "data sheet" in output


def test_what_does_not_fit_ends_with_1_and_says_what_would() -> None:
    result = plan("--model", "1.8b", "--window", "1536x1536x2048", "--gpus", "1", "--decode-share", "1")
    assert result.exit_code == 1
    assert "would fit: --gpus" in result.output
    assert "would fit: --window" in result.output


def test_every_remedy_that_is_named_fits() -> None:
    fixed = {"--model": "huge", "--window": "1536x1536x2048", "--gpus": "8", "--cp": "2", "--checkpointing": "none"}
    refused = plan(*(word for option in fixed.items() for word in option))
    assert refused.exit_code == 1
    remedies = [line.split(":")[1] for line in refused.output.splitlines() if "would fit" in line]
    assert len(remedies) > 2
    for remedy in remedies:
        words = remedy.removesuffix(" together").split()
        changed = fixed | dict(zip(words[::2], words[1::2], strict=True))
        assert plan(*(word for option in changed.items() for word in option)).exit_code == 0, remedy


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--model", "1.8b", "--gpus", "8"), "--window or --largest"),
        (("--model", "1.8b", "--gpus", "8", "--window", "1536x1536"), "1536x1536x2048"),
        (("--model", "1.8b", "--gpus", "8", "--window", "100x100x100"), "multiple of patch"),
        (("--model", "tiny", "--gpus", "1", "--window", "8x8x8", "--keep", "0.99"), "hides none"),
        ((*ASKED, "--gpu", "h300"), "it knows: h100, h200"),
        ((*ASKED, "--keep", "nan"), "not a finite number"),
        ((*ASKED, "--price-per-gpu-hour", "inf"), "not in the range"),
        ((*ASKED, "--batch", "9" * 30), "not in the range"),
        ((*ASKED, "--samples", "9" * 400), "not in the range"),
        (("--model", "1.8b", "--gpus", "8", "--window", "16x16x1" + "0" * 400), "1536x1536x2048"),
    ],
)
def test_options_that_make_no_sense_end_with_2(arguments: tuple[str, ...], expected: str) -> None:
    result = plan(*arguments)
    assert result.exit_code == 2
    assert expected in result.output


def test_the_cross_decoder_and_a_share_of_the_tokens_cost_less() -> None:
    def total(*more: str) -> float:
        parts = said(*ASKED, *more)["flops_per_sample"].values()
        return float(sum(part["forward"] + part["backward"] for part in parts))

    everything = total("--decoder", "self", "--decode-share", "1")
    assert total("--decoder", "self", "--decode-share", "0.5") < 0.8 * everything
    assert total("--decoder", "cross", "--decode-share", "1") < 0.8 * everything


def test_the_largest_window_is_found() -> None:
    found = said("--model", "huge", "--gpus", "8", "--largest", "--shape", "1x1x1")
    assert len(set(found["window"])) == 1
    assert found["memory_per_gpu"]["total"] <= found["memory_per_gpu"]["usable"]


def test_own_assumptions_are_taken_and_an_unusable_file_is_refused(tmp_path: Path) -> None:
    own = yaml.safe_load(DEFAULT.read_text())
    own["gpus"] = {"ours": own["gpus"]["h200"] | {"memory_bytes": {"value": 20e9, "source": "us"}}}
    file = tmp_path / "ours.yaml"
    file.write_text(yaml.safe_dump(own))
    arguments = ("--gpu", "ours", "--assumptions", str(file))
    assert said(*ASKED, *arguments)["memory_per_gpu"]["usable"] < 20e9
    h200 = own["gpus"]["ours"]
    for unusable, said_of_it in (
        (b"gpus: {}", "shares"),
        (b"\x80", "ours.yaml cannot be used"),
        (b"[" * 5000, "ours.yaml cannot be used"),
        (
            yaml.safe_dump(own | {"gpus": {"ours": h200 | {"gpus_per_node": {"value": 0.5, "source": ""}}}}).encode(),
            "node",
        ),
        (
            yaml.safe_dump(own | {"shares": {name: {"value": 20, "source": ""} for name in own["shares"]}}).encode(),
            "equal to 1",
        ),
    ):
        file.write_bytes(unusable)
        refused = plan(*ASKED, *arguments)
        assert refused.exit_code == 2
        assert said_of_it in refused.output


def test_planning_needs_no_torch() -> None:
    code = (
        "import sys; from seismic_model.cli import main; main(standalone_mode=False); sys.exit('torch' in sys.modules)"
    )
    finished = subprocess.run([sys.executable, "-c", code, "plan", *ASKED], check=False, capture_output=True)
    assert finished.returncode == 0, finished.stderr
