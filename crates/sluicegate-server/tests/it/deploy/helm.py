"""Renders the chart with Helm's own engine: `helm.py CHART VALUES`, values as YAML or JSON.

Prints, as JSON, what its linter says, every object, and the notes. Objects are held against the schemas of Kubernetes, strictly;
those of others, which it has none of, are not.
"""

import json
import sys

import helm_python
import kubernetes_validate
import yaml

# The oldest that the chart is for, and the newest that is known.
VERSIONS = ["1.30", kubernetes_validate.latest_version()]
OTHERS = {"ServiceMonitor"}

chart_path, values = sys.argv[1], yaml.safe_load(sys.argv[2])
lint = helm_python.lint(chart_path, values, strict=True)
chart = helm_python.Chart.load(chart_path)
chart.validate_schema(values)
rendered = chart.render(values, name="limits", namespace="edge", is_install=True)
objects = []
for path, text in sorted(rendered.items()):
    if path.endswith(".yaml"):
        objects += [each for each in yaml.safe_load_all(text) if each]
for each in objects:
    if each["kind"] not in OTHERS:
        for version in VERSIONS:
            kubernetes_validate.validate(each, version, strict=True)
notes = next(text for path, text in rendered.items() if path.endswith("NOTES.txt"))
json.dump({"lint": lint, "objects": objects, "notes": notes}, sys.stdout)
