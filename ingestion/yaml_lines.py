"""YAML as a survey spec uses it: one mapping of names to values or lists of values, and the line of each.

Values are read by the core schema of YAML 1.2, so that nothing turns into something else unseen: ``no`` and
``2019-02-30`` stay text, and a number that other readers take otherwise (``012``, ``1_000``, ``0x1F``) stays text
as well, which a number field then refuses. Anchors, aliases and tags are refused: no value can grow or be made.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml

Value = str | int | float | bool | None
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,30})")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]{1,4})?")
_WORDS: dict[str, Value] = {"": None, "~": None, "null": None, "true": True, "false": False}


class YamlLinesError(Exception):
    """The text is no such YAML; the message says the line."""


@dataclass(frozen=True)
class Lines:
    """What stands in a YAML text, and where."""

    fields: dict[str, Value | list[Value]]
    line: dict[tuple[str | int, ...], int]  # from 1, by ("field",) or ("field", index of a list)


def read_lines(text: str) -> Lines:
    """The mapping in ``text``; empty for an empty text. Raises ``YamlLinesError``."""
    try:
        _refuse_marks(text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise YamlLinesError(_readable(error)) from error
    lines = Lines({}, {})
    if root is None or (isinstance(root, yaml.ScalarNode) and _value(root) is None):
        return lines
    if not isinstance(root, yaml.MappingNode):
        kind = "list" if isinstance(root, yaml.SequenceNode) else "single value"
        raise YamlLinesError(f"found a {kind}; expected `field: value` lines")
    for key, node in root.value:
        _add(lines, key, node)
    return lines


def _refuse_marks(text: str) -> None:
    """Look at the events only, before anything is built: depth, anchors, aliases and tags."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise YamlLinesError(f"line {line}: anchors (&) and aliases (*) have no place here; quote such text")
        if getattr(event, "tag", None):
            raise YamlLinesError(f"line {line}: tags (!) have no place here; quote such text")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > 2:
            raise YamlLinesError(f"line {line}: lists of lists and fields of fields have no place here")


def _add(lines: Lines, key: yaml.Node, node: yaml.Node) -> None:
    number = key.start_mark.line + 1
    if not isinstance(key, yaml.ScalarNode):
        raise YamlLinesError(f"line {number}: expected a field's name before the colon")
    name = str(key.value)
    if name in lines.fields:
        raise YamlLinesError(f"line {number}: `{name}` stands here again; it stands in line {lines.line[(name,)]} too")
    lines.line[(name,)] = number
    if isinstance(node, yaml.ScalarNode):
        lines.fields[name] = _value(node)
    elif isinstance(node, yaml.SequenceNode) and all(isinstance(item, yaml.ScalarNode) for item in node.value):
        lines.fields[name] = [_value(item) for item in node.value]
        lines.line.update({(name, i): item.start_mark.line + 1 for i, item in enumerate(node.value)})
    else:
        raise YamlLinesError(f"line {number}: `{name}` holds fields of its own; expected a value or a list of values")


def _value(node: yaml.ScalarNode) -> Value:
    text = str(node.value)
    if node.style is not None:  # in quotes, or a block of text
        return text
    if text.lower() in _WORDS and text in (text.lower(), text.capitalize(), text.upper()):
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _readable(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem or error.context}"
    return " ".join(str(error).split())
