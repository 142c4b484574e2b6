"""What calls need to be allowed, and what the policies of infra/iam allow, both as (resource, action)."""

import json
import re
from pathlib import Path

POLICIES = Path(__file__).resolve().parents[2] / "infra/iam"

# A batch needs what each of its entries needs.
OF_BATCH = {
    "SendMessageBatch": "SendMessage",
    "DeleteMessageBatch": "DeleteMessage",
    "ChangeMessageVisibilityBatch": "ChangeMessageVisibility",
}
OF_TRANSACTION = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}


def needed(calls, names):
    """Of calls as they were sent. `names` says for what each ("table", name) and ("queue", name) stands
    in the policies."""
    found = set()
    for call in calls:
        service, _, operation = call.target.partition(".")
        if service == "AmazonSQS":
            name = call.json.get("QueueName") or call.json["QueueUrl"].rsplit("/", 1)[-1]
            found.add((names["queue", name], f"sqs:{OF_BATCH.get(operation, operation)}"))
        elif service.startswith("DynamoDB_"):
            found |= {(names_of(table, names), f"dynamodb:{action}") for table, action in of_dynamodb(operation, call.json)}
        else:
            raise AssertionError(f"{call.method} {call.path} {call.target} is of a service that is not looked at")
    return found


def names_of(table, names):
    name, _, index = table.partition("/")
    return names["table", name] + (f"/{index}" if index else "")


def of_dynamodb(operation, request):
    if operation == "TransactWriteItems":
        items = [item for entry in request["TransactItems"] for item in entry.items()]
        return [(item["TableName"], OF_TRANSACTION[kind]) for kind, item in items]
    if operation in ("BatchGetItem", "BatchWriteItem"):
        return [(table, operation) for table in request["RequestItems"]]
    if operation in ("ExecuteStatement", "BatchExecuteStatement", "ExecuteTransaction"):
        entries = request.get("Statements") or request.get("TransactStatements") or [request]
        return [of_statement(entry["Statement"]) for entry in entries]
    index = f"/index/{request['IndexName']}" if "IndexName" in request else ""
    return [(request["TableName"] + index, operation)]


def of_statement(text):
    table = re.search(r'"([^"]+)"', text)[1]
    return table, f"PartiQL{text.split()[0].capitalize()}"


def granted(policy, without=()):
    """What a policy allows, but for the statements left out."""
    return {
        (resource_of(resource), action)
        for statement in statements(policy)
        if statement["Sid"] not in without
        for resource in listed(statement["Resource"])
        for action in listed(statement["Action"])
    }


def statements(policy):
    return json.loads((POLICIES / f"{policy}.json").read_text())["Statement"]


def resource_of(arn):
    return arn.split(":", 5)[-1].removeprefix("table/")


def listed(value):
    return [value] if isinstance(value, str) else value
