"""What a model file says about itself, as the texts of Graph.metadata, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aicore.errors import ModelError
from aicore.frontends.onnx.protos import ModelProto
from aicore.ir import Graph

PROPERTY = "property:"
"""Prefix of the keys of custom properties."""
OPSET = "opset:"
"""Prefix of the keys that hold the version of an imported domain; the standard one is ai.onnx."""

OVERRIDABLE = "overridable"
"""Key of the initializers that the model lists as inputs, as a JSON list."""

_STATE = "aicore.state"
_OVERRIDABLE_SINCE = 4
"""Before this IR version every initializer had to be listed as an input, so the list says nothing."""
_TEXTS = ("producer_name", "producer_version", "domain")


def read_metadata(model: ModelProto) -> dict[str, str]:
    """The texts of a model; those that it leaves empty are left out.

    Keys: producer_name, producer_version, domain, description, graph_name, graph_description, model_version,
    ir_version, overridable, `opset:<domain>` and `property:<key>`.
    """
    found = {name: getattr(model, name) for name in _TEXTS}
    found["description"] = model.doc_string
    found["graph_name"] = model.graph.name
    found["graph_description"] = model.graph.doc_string
    found["model_version"] = str(model.model_version) if model.HasField("model_version") else ""
    found["ir_version"] = str(model.ir_version)
    listed = {value.name for value in model.graph.input}
    overridable = [tensor.name for tensor in model.graph.initializer if tensor.name in listed]
    if overridable and model.ir_version >= _OVERRIDABLE_SINCE:
        found[OVERRIDABLE] = json.dumps(overridable)
    for entry in model.opset_import:
        found[f"{OPSET}{_lenient(entry.domain) or 'ai.onnx'}"] = str(entry.version)
    for prop in model.metadata_props:
        if prop.key != _STATE:
            found[f"{PROPERTY}{_lenient(prop.key)}"] = prop.value
    return {_lenient(key): _lenient(text) for key, text in found.items() if text}


def _lenient(text: str | bytes) -> str:
    """Descriptions do not matter enough to refuse a model for a byte that is not UTF-8."""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def overridable_names(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Initializers that `load_model` makes inputs when asked to, by the metadata of the graph that it gave."""
    return tuple(json.loads(metadata.get(OVERRIDABLE, "[]")))


def read_state(model: ModelProto) -> tuple[tuple[str, str], ...]:
    """The state pairs that write_metadata left in a model; none for models of other producers."""
    text = next((prop.value for prop in model.metadata_props if prop.key == _STATE), "[]")
    try:
        return tuple((str(output), str(input_)) for output, input_ in json.loads(text))
    except (ValueError, TypeError) as error:
        raise ModelError(f"the property {_STATE!r} is damaged: {text[:80]!r}") from error


def write_metadata(graph: Graph, model: ModelProto) -> None:
    """The reverse; versions are the writer's own affair, except the model's."""
    metadata = graph.metadata
    for name in _TEXTS:
        if name in metadata:
            setattr(model, name, metadata[name])
    model.doc_string = metadata.get("description", "")
    model.graph.name = metadata.get("graph_name", "") or "graph"
    model.graph.doc_string = metadata.get("graph_description", "")
    version = metadata.get("model_version", "")
    if version.lstrip("-").isdigit():
        model.model_version = int(version)
    properties = {k.removeprefix(PROPERTY): text for k, text in metadata.items() if k.startswith(PROPERTY)}
    if graph.state:
        properties[_STATE] = json.dumps(graph.state)
    for key, text in properties.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, text
