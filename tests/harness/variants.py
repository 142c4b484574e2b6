"""template.yaml with other defaults, as its users set its parameters, for linters that read no parameters."""

import re

KEY = "arn:aws:kms:us-east-1:123456789012:key/0b1c2d3e-0000-4000-8000-000000000000"

# The options that make or leave out resources, and the ranges that exclude one another.
VARIANTS = {
    "shipped": {},
    "fifo": {"Fifo": "true"},
    "kms": {"KmsKeyArn": KEY, "Outbox": "true"},
    "outbox": {"Outbox": "true"},
    "drill": {"Drill": "true"},
    "large-batches": {"BatchSize": "1000", "BatchingWindow": "20", "MaximumConcurrency": "50", "Architecture": "arm64"},
    "existing": {
        "ExistingQueueArn": "arn:aws:sqs:us-east-1:123456789012:orders",
        "ExistingTableName": "orders",
        "AlarmTopicArn": "arn:aws:sns:us-east-1:123456789012:alarms",
        "Dashboard": "false",
    },
    "existing-fifo-kms": {
        "ExistingQueueArn": "arn:aws:sqs:us-east-1:123456789012:orders.fifo",
        "ExistingTableName": "orders",
        "ExistingOutboxStreamArn": "arn:aws:dynamodb:us-east-1:123456789012:table/orders-outbox/stream/2026",
        "Outbox": "true",
        "Fifo": "true",
        "KmsKeyArn": KEY,
    },
}


def write(template, folder):
    """One file a variant; their paths."""
    text = template.read_text()
    paths = []
    for name, parameters in VARIANTS.items():
        path = folder / f"{name}.yaml"
        path.write_text(with_defaults(text, parameters))
        paths.append(path)
    return paths


def with_defaults(text, parameters):
    for name, value in parameters.items():
        default = re.compile(rf"^(  {name}:\n(?:    .*\n)*?    Default: ).*$", re.MULTILINE)
        number = re.search(rf"^  {name}:\n    Type: Number$", text, re.MULTILINE)
        text, count = default.subn(rf"\g<1>{value if number else repr(value)}", text)
        if count != 1:
            raise ValueError(f"the template has no parameter {name} with a default")
    return text
