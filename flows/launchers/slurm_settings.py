"""What a Slurm cluster's owner writes under ``slurm:`` in a settings file."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from flows.launchers import names_secret
from ingestion.manifest import Contract


def _no_secret(name: str) -> str:
    if names_secret(name):
        raise ValueError(
            f"{name} looks like a secret, and a job's script is no place for one; let the nodes have it: by their "
            "role, or by a `python` that reads it from a file (docs/slurm.md)"
        )
    return name


Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$")]  # stands in an #SBATCH line as it is
Folder = Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9._-]+)+$")]  # there too, and % would be a pattern
Line = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00-\x1f\x7f]+$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), AfterValidator(_no_secret)]


class SlurmSettings(Contract):
    """Where and how training jobs run; docs/slurm.md says what each of these is on HyperPod."""

    command: tuple[str, ...] = Field(("bash", "-c"), min_length=1)  # one command line is appended; ("ssh", "HOST")
    folder: Folder  # shared by all nodes: scripts, logs, results
    python: Line  # on the nodes; may be a script that reads secrets first
    working_directory: Line  # on the nodes, where flows and seismic_model can be imported
    processes_per_node: int = Field(ge=1)
    gpu_memory_gib: float | None = Field(None, gt=0)  # free on each process's GPU, or its node is bad; None: no GPUs
    gpus_per_node: int | None = Field(None, ge=1)  # asked of Slurm where GPUs are its GRES; None: it knows of none
    partition: Word | None = None  # None: the cluster's default
    account: Word | None = None
    save_seconds: int = Field(120, ge=1)  # in which ranks end their step and save, once they are asked to stop
    requeues: int = Field(5, ge=0)  # times that a job leaves a bad node behind
    scratch: Line = "/tmp"  # noqa: S108  # TMPDIR on the nodes
    environment: dict[Variable, str] = {}
