"""The generic audits: what their YAML says of their arguments."""

from __future__ import annotations

import re

import yaml
from helpers.documents import ROOT

AUDITS = ROOT / "macros/audits"
SIGNATURE = re.compile(r"{%-? *test (\w+)\((.*?)\) *-?%}", re.DOTALL)


def test_the_yaml_of_the_audits_has_exactly_their_arguments() -> None:
    found = {
        f"test_{name}": [one.partition("=")[0].strip() for one in arguments.split(",")]
        for path in AUDITS.glob("*.sql")
        for name, arguments in SIGNATURE.findall(path.read_text())
    }
    described = {
        macro["name"]: [one["name"] for one in macro["arguments"]]
        for path in AUDITS.glob("*.yml")
        for macro in yaml.safe_load(path.read_text())["macros"]
        if macro["name"].startswith("test_")
    }
    assert len(found) >= len(list(AUDITS.glob("*.sql")))
    assert described == found, "correct the YAML files in macros/audits"
