"""weft completion schema: it is a schema, and what verbs print with --json is what it says."""

import json
import os
import subprocess

import pytest
from weft import _native

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")


def run(*command):
    return subprocess.run([_native.program(), *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout


@pytest.fixture(scope="module")
def schema():
    schema = json.loads(run("completion", "schema"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def holds(schema, verb, *command):
    printed = json.loads(run(*command, "--json"))
    of_verb = {"$ref": f"#/$defs/{verb}", "$defs": schema["$defs"]}
    jsonschema.Draft202012Validator(of_verb).validate(printed)
    jsonschema.Draft202012Validator(schema).validate(printed)
    return printed


def test_plans(schema, small):
    assert holds(schema, "check", "check", os.fspath(small))["result"]["name"] == "small"
    assert holds(schema, "check", "check", os.fspath(small), "--set", "mesh.tp=3")["result"] is None
    for topic in ("mesh", "memory", "schedule"):
        holds(schema, "show", "show", topic, os.fspath(small))
    holds(schema, "show-stages", "show", "stages", os.fspath(small))
    holds(schema, "report", "report", os.fspath(small))
    holds(schema, "diff", "diff", os.fspath(small), os.fspath(small))
    holds(schema, "explain", "explain", "divisibility")


def test_what_does_not_hold(schema, small):
    printed = holds(schema, "check", "check", os.fspath(small))
    printed["error_count"] = "none"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate(printed)
