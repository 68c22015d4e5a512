"""A winner goes up for review: one version of the model, with everything a reviewer needs to decide.

The artifacts lie under the MLflow run of the training, which must be there before a version is made, since MLflow
accepts a version whose source does not exist:

    review/<run>-step-00000100/model/…            what `mlflow.pyfunc.load_model` loads
                              /pictures/*.png
                              /evaluation.json, decision.json, config.json, dataset.json
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING

from ingestion.lake import Lake
from seismic_model.config import RunConfig
from seismic_model.data.dataset import Dataset
from seismic_model.evaluation.scores import Decision, Evaluation
from seismic_model.registry import package
from seismic_model.registry.description import MAX_LENGTH, describe, licences, lineage
from seismic_model.registry.review import Request, nominate
from seismic_model.registry.versions import (
    LAKE,
    MODEL_NAME,
    PENDING,
    RUN,
    STATUS,
    STEP,
    WEIGHTS,
    RegistryError,
    connect,
    versions,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

    from seismic_model.training.checkpoint import CheckpointManifest


def register(
    lake: Lake,
    config: RunConfig,
    checkpoint: CheckpointManifest,
    dataset: Dataset,
    evaluation: Evaluation,
    decision: Decision,
    pictures: Mapping[str, bytes],
    *,
    tracking_uri: str | None = None,
) -> str:
    """Make the checkpoint the challenger; the number of its version.

    The same run, step and weights are registered once: again, or after being killed, gives the same version. A
    version that was decided on stays as it is; an undecided challenger before this one is marked as superseded.

    Args:
        lake: where the run lies.
        config: of the run.
        checkpoint: the one that was scored.
        dataset: what ``config.dataset`` holds.
        evaluation: of this checkpoint.
        decision: the gate's word on it.
        pictures: PNG by name.
        tracking_uri: default ``MLFLOW_TRACKING_URI``.

    Raises ``RegistryError`` when these do not belong together, when the gate said no, or when the artifacts did not
    arrive; ``CheckpointError`` for weights that are lost or damaged.
    """
    from seismic_model.training.retention import protect  # torch

    _check_they_belong_together(config, checkpoint, evaluation, decision)
    protect(lake, checkpoint, "registered")  # the next week starts from it and is compared with it
    client = connect(tracking_uri)
    found = _registered(client, checkpoint)
    if found is None:
        run_id = _tracking_run(client, config)
        folder = f"review/{checkpoint.run}-step-{checkpoint.step:08d}"
        with tempfile.TemporaryDirectory(prefix="sfm-register-") as scratch:
            files = Path(scratch) / "files"
            _write_files(lake, checkpoint, dataset, evaluation, decision, pictures, files)
            client.log_artifacts(run_id, str(files), folder)
            _check_they_arrived(client, run_id, files, folder)
        _log_scores(client, run_id, checkpoint.step, evaluation)
        made = _create_version(client, run_id, folder, checkpoint, dataset, evaluation, decision)
        found = _only_one(client, checkpoint, made)
    if found.tags.get(STATUS) == PENDING:
        nominate(client, found, Request(by=f"run {checkpoint.run}", lake=lake.uri))
    return str(found.version)


def _check_they_belong_together(
    config: RunConfig, checkpoint: CheckpointManifest, evaluation: Evaluation, decision: Decision
) -> None:
    scored = (evaluation.run, evaluation.step, evaluation.weights_sha256)
    if scored != (checkpoint.run, checkpoint.step, checkpoint.weights_sha256) or checkpoint.run != config.run:
        raise RegistryError(
            f"the evaluation is of run {evaluation.run}, step {evaluation.step}, weights "
            f"{evaluation.weights_sha256[:12]}; the checkpoint is of run {checkpoint.run}, step {checkpoint.step}, "
            f"weights {checkpoint.weights_sha256[:12]}, the config of run {config.run}; evaluate the checkpoint again"
        )
    judged = (decision.candidate_run, decision.candidate_step, decision.evaluation_key)
    if judged != (evaluation.run, evaluation.step, evaluation.evaluation_key):
        raise RegistryError(
            f"the decision is on run {decision.candidate_run}, step {decision.candidate_step}, the evaluation on run "
            f"{evaluation.run}, step {evaluation.step}, or their regions differ; put the evaluation through the gate"
        )
    if not decision.promote:
        raise RegistryError(
            f"run {checkpoint.run}, step {checkpoint.step} lost and is not registered: {' '.join(decision.reasons)}"
        )


def _registered(client: MlflowClient, checkpoint: CheckpointManifest) -> ModelVersion | None:
    """The oldest version of this checkpoint."""
    wanted = {RUN: checkpoint.run, STEP: str(checkpoint.step), WEIGHTS: checkpoint.weights_sha256}
    same = [each for each in versions(client) if wanted.items() <= each.tags.items()]
    return min(same, key=lambda each: int(each.version), default=None)


def _only_one(client: MlflowClient, checkpoint: CheckpointManifest, made: ModelVersion) -> ModelVersion:
    """The version to go on with: two starts of one week may each have made one in the same moment."""
    oldest = _registered(client, checkpoint) or made
    if int(oldest.version) < int(made.version):
        client.delete_model_version(MODEL_NAME, made.version)
    return oldest


def _tracking_run(client: MlflowClient, config: RunConfig) -> str:
    """Id of the run that training logged to; a finished one is made when training was not tracked."""
    from seismic_model.training.tracking import find_run, open_run

    run_id = find_run(client, config)
    if run_id is None:
        run_id = open_run(client, config)
        client.set_terminated(run_id)
    return run_id


def _write_files(
    lake: Lake,
    checkpoint: CheckpointManifest,
    dataset: Dataset,
    evaluation: Evaluation,
    decision: Decision,
    pictures: Mapping[str, bytes],
    files: Path,
) -> None:
    (files / "pictures").mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="sfm-package-", dir=files.parent) as scratch:
        package.build(lake, checkpoint, files / "model", Path(scratch))
    documents = {"config": checkpoint.config, "dataset": dataset, "evaluation": evaluation, "decision": decision}
    for name, document in documents.items():
        (files / f"{name}.json").write_bytes(document.to_bytes())
    for name, png in pictures.items():
        (files / "pictures" / _file_name(name)).write_bytes(png)


def _file_name(picture: str) -> str:
    kept = "".join(c if c.isalnum() or c in "-_." else "-" for c in picture.removesuffix(".png"))
    return f"{kept.strip('.-') or 'picture'}.png"


def _check_they_arrived(client: MlflowClient, run_id: str, files: Path, folder: str) -> None:
    """What was sent is there, each file with its size. Raises ``RegistryError``."""
    sent = {f"{folder}/{file.relative_to(files)}": file.stat().st_size for file in files.rglob("*") if file.is_file()}
    there: dict[str, int | None] = {}
    folders = [folder]
    while folders:
        for entry in client.list_artifacts(run_id, folders.pop()):
            if entry.is_dir:
                folders.append(entry.path)
            else:
                there[entry.path] = entry.file_size
    if missing := sorted(path for path, size in sent.items() if there.get(path) != size):
        raise RegistryError(
            f"{len(missing)} of {len(sent)} artifacts did not arrive whole in MLflow, the first {missing[0]}; "
            "see to the artifact store and register again"
        )


def _log_scores(client: MlflowClient, run_id: str, step: int, evaluation: Evaluation) -> None:
    """Beside the training curves, where MLflow compares runs."""
    client.log_metric(run_id, "held_out_error", evaluation.mean_error(), step=step)
    for survey in evaluation.surveys:
        client.log_metric(run_id, f"held_out_error/{survey.survey}", survey.scores["model"].error, step=step)


def _create_version(
    client: MlflowClient,
    run_id: str,
    folder: str,
    checkpoint: CheckpointManifest,
    dataset: Dataset,
    evaluation: Evaluation,
    decision: Decision,
) -> ModelVersion:
    """One call, so that a version is never without its tags."""
    artifacts = client.get_run(run_id).info.artifact_uri
    _ensure_model(client)
    return client.create_model_version(
        MODEL_NAME,
        source=f"{artifacts}/{folder}/model",
        run_id=run_id,
        tags={name: value[:MAX_LENGTH] for name, value in _tags(checkpoint, dataset, evaluation, decision).items()},
        description=describe(checkpoint, dataset, evaluation, decision, folder),
    )


def _ensure_model(client: MlflowClient) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(
            MODEL_NAME, description="3D ViT masked autoencoder for seismic volumes, retrained every week."
        )
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _tags(
    checkpoint: CheckpointManifest, dataset: Dataset, evaluation: Evaluation, decision: Decision
) -> dict[str, str]:
    config = checkpoint.config
    return {
        STATUS: PENDING,
        RUN: checkpoint.run,
        LAKE: config.lake,
        STEP: str(checkpoint.step),
        WEIGHTS: checkpoint.weights_sha256,
        "sfm.week": dataset.week,
        "sfm.dataset": config.dataset,
        "sfm.dataset_sha256": config.dataset_sha256,
        "sfm.surveys": lineage(dataset),
        "sfm.licences": licences(dataset),
        "sfm.code": _code_version(),
        "sfm.evaluation_key": evaluation.evaluation_key,
        "sfm.compared_with": f"{decision.champion_run}@{decision.champion_step}"
        if decision.champion_run
        else "baselines",
        "sfm.error": f"{decision.candidate:.6g}",
        "sfm.reference_error": f"{decision.reference:.6g}",
        "sfm.gain": f"{decision.gain:.6g}",
    }


def _code_version() -> str:
    """Version of this project, with the commit when it runs from a work tree."""
    release = installed("seismic-retraining")
    git = shutil.which("git")
    if git is None:
        return release
    described = subprocess.run(
        [git, "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{release} {described.stdout.strip()}".strip()
