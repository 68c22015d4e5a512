"""A fault of Metaflow's workflow templates that stops conditional steps on Argo, and its repair.

The step after a condition takes its input from whichever branch ran. Metaflow names the outputs of all of them,
``:collect/{{tasks.collect.outputs.parameters.task-id}},start/{{tasks.start…}}``, and lets the pod drop what Argo left
unfilled. Argo from 3.7.11, 4.0.2 and 4.1 on fills such a text in strictly: the step is never started, or the workflow
fails (github.com/Netflix/metaflow/issues/3043, open in Metaflow 2.19.39). Here the text becomes an expression that
looks at the branches' status first and names the one that ran; older versions of Argo take it as well.
"""

from __future__ import annotations

import re
from typing import Any

_ALTERNATIVES = re.compile(
    r"(argo-\{\{workflow\.name\}\}/):((?:\w+/\{\{tasks\.[\w-]+\.outputs\.parameters\.task-id\}\},?)+)"
)
_ONE = re.compile(r"(\w+)/\{\{tasks\.([\w-]+)\.outputs\.parameters\.task-id\}\}")


def repair(template: dict[str, Any]) -> dict[str, Any]:
    """``template`` in which no step names the output of a branch that did not run."""
    switches = {
        each["name"]
        for each in template["spec"]["templates"]
        if any(output["name"] == "switch-step" for output in each.get("outputs", {}).get("parameters", []))
    }
    for each in template["spec"]["templates"]:
        for task in each.get("dag", {}).get("tasks", []):
            for parameter in task.get("arguments", {}).get("parameters", []):
                found = _ALTERNATIVES.fullmatch(str(parameter["value"]))
                if found:
                    parameter["value"] = f"{found[1]}{{{{={_the_one_that_ran(found[2], switches)}}}}}"
    return template


def _the_one_that_ran(alternatives: str, switches: set[str]) -> str:
    """An expression for ``step/task-id``: a switch itself only where it skipped the branch that ends here."""
    branches = sorted(_ONE.findall(alternatives), key=lambda branch: branch[1] in switches)
    *others, (step, task) = branches
    expression = _path(step, task)
    for step, task in reversed(others):
        expression = f"tasks['{task}'].status == 'Succeeded' ? {_path(step, task)} : ({expression})"
    return expression


def _path(step: str, task: str) -> str:
    """By `get`, since Argo looks for every output that an expression names, in the branch not taken too."""
    return f"'{step}/' + get(get(get(tasks['{task}'], 'outputs'), 'parameters'), 'task-id')"
