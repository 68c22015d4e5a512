"""A fault of Metaflow's workflow templates that stops conditional steps on Argo, and its repair.

The step after a condition takes its input from whichever branch ran. Metaflow names the outputs of all of them,
``:collect/{{tasks.collect.outputs.parameters.task-id}},start/{{tasks.start…}}``, and lets the pod drop what Argo left
unfilled; its conditions name the choice of steps that may not have run. Argo from 3.7.11, 4.0.2 and 4.1 on takes that
strictly: such a step is never started, or the workflow fails (github.com/Netflix/metaflow/issues/3043, open in
Metaflow 2.19.39). Here both become expressions that look at a step's status first; older Argo takes them as well.
"""

from __future__ import annotations

import re
from typing import Any

_ONE = r"(\w+)/\{\{tasks\.([\w-]+)\.outputs\.parameters\.task-id\}\}"
_ALTERNATIVES = re.compile(rf"(argo-\{{\{{workflow\.name\}}\}}/):({_ONE}(?:,{_ONE})+)")
_CHOICE = re.compile(r"tasks\['([\w-]+)'\]\.outputs\.parameters\['switch-step'\]")


def repair(template: dict[str, Any]) -> dict[str, Any]:
    """``template`` in which nothing names the output of a step that did not run."""
    for each in template["spec"]["templates"]:
        tasks = each.get("dag", {}).get("tasks", [])
        order = [task["name"] for task in tasks]  # Metaflow lists a step after those before it
        for task in tasks:
            if task.get("when"):
                task["when"] = _CHOICE.sub(lambda found: _output(found[1], "switch-step"), task["when"])
            for parameter in task.get("arguments", {}).get("parameters", []):
                if found := _ALTERNATIVES.fullmatch(parameter["value"]):
                    parameter["value"] = f"{found[1]}{{{{={_the_last_that_ran(found[2], order)}}}}}"
    return template


def _the_last_that_ran(alternatives: str, order: list[str]) -> str:
    """An expression for ``step/task-id``; a step that chose to go here directly ran before those it passed over."""
    first, *later = sorted(re.findall(_ONE, alternatives), key=lambda branch: order.index(branch[1]))
    expression = _path(*first)
    for step, task in later:
        expression = f"tasks['{task}'].status == 'Succeeded' ? {_path(step, task)} : ({expression})"
    return expression


def _path(step: str, task: str) -> str:
    return f"'{step}/' + {_output(task, 'task-id')}"


def _output(task: str, name: str) -> str:
    """By `get`, since Argo looks for all outputs that an expression names, in the branch not taken too."""
    return f"get(get(get(tasks['{task}'], 'outputs'), 'parameters'), '{name}')"
