"""What the store that all contenders write to is asked for, and how long it takes."""

import http.client
import json
import threading
import time
import uuid

from harness.forwarder import Forwarder, ask

# What a write that was refused costs as well: a unit, as long as the item is of 1 KB at most.
REFUSED = {"ConditionalCheckFailed", "ConditionalCheckFailedException", "DuplicateItem"}


class Units(Forwarder):
    """Passes requests on, asks the store what each consumed, and adds that up."""

    def __init__(self, upstream):
        self._lock = threading.Lock()
        self._reset()
        super().__init__(upstream)

    def _reset(self):
        self.count, self.writes, self.reads, self.operations = 0, 0.0, 0.0, {}

    def read(self):
        """Requests, write units and read units since the last time, and the requests by operation."""
        with self._lock:
            found = (self.count, self.writes, self.reads, self.operations)
            self._reset()
        return found

    def _ask(self, call, headers, target):
        asked = {**json.loads(call.body), "ReturnConsumedCapacity": "TOTAL"}
        body = json.dumps(asked).encode()
        answer = ask(target, call.method, call.path, headers, body)
        reads, writes = units(call.operation, asked, json.loads(answer.body))
        with self._lock:
            self.count += 1
            self.reads += reads
            self.writes += writes
            self.operations[call.operation] = self.operations.get(call.operation, 0) + 1
        call.status = answer.status
        return answer


def units(operation, asked, answered):
    """Read and write units of one request, by the rules of DynamoDB's prices."""
    if operation in ("GetItem", "BatchGetItem", "Query"):
        consumed = answered.get("ConsumedCapacity") or []
        return sum(table["CapacityUnits"] for table in (consumed if isinstance(consumed, list) else [consumed])), 0
    if operation == "BatchExecuteStatement":
        # Not every emulator says it; each statement here writes one item of less than 1 KB.
        statements = zip(asked["Statements"], answered.get("Responses", []))
        return 0, sum(1 for _, told in statements if told.get("Error", {}).get("Code") in REFUSED | {None})
    if answered.get("__type", "").rsplit("#", 1)[-1] in REFUSED:
        return 0, 1
    consumed = answered.get("ConsumedCapacity") or []
    return 0, sum(table["CapacityUnits"] for table in (consumed if isinstance(consumed, list) else [consumed]))


def round_trip(port, table, writes=0, times=7):
    """The median seconds of one bare request on an open connection: for an item that is not there, or
    with so many writes, at most as many as fit into one."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    operation = "BatchExecuteStatement" if writes else "GetItem"
    headers = {
        "X-Amz-Target": f"DynamoDB_20120810.{operation}",
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Date": "20260101T000000Z",
        "Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/dynamodb/aws4_request, "
        "SignedHeaders=host, Signature=0",
    }
    insert = f"INSERT INTO \"{table}\" VALUE {{'pk': ?, 'note': ?}}"
    taken = []
    try:
        for _ in range(times):
            body = {"TableName": table, "Key": {"pk": {"S": "none"}}, "ConsistentRead": True}
            if writes:
                items = [[{"S": uuid.uuid4().hex}, {"S": "x" * 400}] for _ in range(min(writes, 25))]
                body = {"Statements": [{"Statement": insert, "Parameters": item} for item in items]}
            begun = time.perf_counter()
            connection.request("POST", "/", json.dumps(body), headers)
            answer = connection.getresponse()
            told = answer.read()
            taken.append(time.perf_counter() - begun)
            if answer.status != 200 or b'"Error"' in told:
                raise RuntimeError(f"the store answers {answer.status}: {told[:200]}")
    finally:
        connection.close()
    return sorted(taken)[times // 2]
