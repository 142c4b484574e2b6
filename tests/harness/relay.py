"""The outbox of a deployment, and the relay on its stream."""

import time
from contextlib import contextmanager
from dataclasses import dataclass

from .deployment import Aws, create_function, plain, until

OUTBOX = {
    "BillingMode": "PAY_PER_REQUEST",
    "AttributeDefinitions": [
        {"AttributeName": "order_key", "AttributeType": "S"},
        {"AttributeName": "event_id", "AttributeType": "S"},
    ],
    "KeySchema": [
        {"AttributeName": "order_key", "KeyType": "HASH"},
        {"AttributeName": "event_id", "KeyType": "RANGE"},
    ],
    "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
}

SWEEP = {"onlyonce": "sweep"}


@dataclass
class Relay:
    aws: Aws
    table: str
    function: str
    stream: str

    def rows(self):
        """What is in the outbox."""
        pages = self.aws.dynamodb.get_paginator("scan").paginate(TableName=self.table, ConsistentRead=True)
        return [
            {name: plain(value) for name, value in row.items()} for page in pages for row in page["Items"]
        ]

    def wait_empty(self, timeout=45):
        until(f"{self.table} empty", lambda: not self.rows(), timeout)

    def put(self, *event, **more):
        """Commits an event, as any transaction may: what `row` takes."""
        self.aws.dynamodb.put_item(TableName=self.table, Item=row(*event, **more))

    def put_together(self, events):
        """Commits (order key, event id, event, body) entries in one call, so that they may share a batch."""
        puts = [{"PutRequest": {"Item": row(*event)}} for event in events]
        answer = self.aws.dynamodb.batch_write_item(RequestItems={self.table: puts})
        assert not answer.get("UnprocessedItems"), answer

    def sweep(self):
        """What the schedule does once a minute."""
        return self.aws.invoke(self.function, SWEEP)


def row(order_key, event_id, event, body, age=0, **more):
    """The outbox's item of an event that is `age` seconds old."""
    texts = {"order_key": order_key, "event_id": event_id, "event": event, "body": body}
    texts |= {name: value for name, value in more.items() if isinstance(value, str)}
    numbers = {"created_at": int((time.time() - age) * 1000)}
    numbers |= {name: value for name, value in more.items() if isinstance(value, int)}
    return {name: {"S": text} for name, text in texts.items()} | {
        name: {"N": str(number)} for name, number in numbers.items()
    }


class Source:
    """Brings the stream to the relay, as AWS does: a batch at a time, and again from the record on
    that the answer names. MiniStack's own event source goes on whatever it is answered."""

    def __init__(self, relay):
        self._relay = relay
        self._done = 0

    def deliver(self):
        """One invocation with all that is not done. The rows it brought, and the first that must come again."""
        records = self._records()[self._done :]
        answer = self._relay.aws.invoke(self._relay.function, {"Records": records})
        numbers = [record["dynamodb"]["SequenceNumber"] for record in records]
        failed = [numbers.index(failure["itemIdentifier"]) for failure in answer["batchItemFailures"]]
        first = min(failed, default=None)
        self._done += len(records) if first is None else first
        return [self._row(record) for record in records], first

    def _row(self, record):
        return {name: plain(value) for name, value in record["dynamodb"].get("NewImage", {}).items()}

    def _records(self):
        streams, arn = self._relay.aws.streams, self._relay.stream
        records = []
        for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
            iterator = streams.get_shard_iterator(
                StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            while page := streams.get_records(ShardIterator=iterator):
                records += page["Records"]
                iterator = page.get("NextShardIterator")
                if not page["Records"] or not iterator:
                    break
        for record in records:
            change = record["dynamodb"]
            change["ApproximateCreationDateTime"] = change["ApproximateCreationDateTime"].timestamp()
            record["eventSourceARN"] = arn
        return records


@contextmanager
def relayed(aws, shop, package, *, env=None, endpoint=None, timeout=10, source=True):
    """The outbox of `shop`, and its relay, on the stream unless that is left to the test."""
    table, function = f"{shop.table}-outbox", f"{shop.table}-relay"
    stream = aws.dynamodb.create_table(TableName=table, **OUTBOX)["TableDescription"]["LatestStreamArn"]
    aws.dynamodb.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    variables = {
        "AWS_ENDPOINT_URL": endpoint or aws.inner_endpoint,
        "ONLYONCE_STORE": f"dynamodb://{shop.table}",
        "ONLYONCE_QUEUE_URL": shop.queue_url,
        "ONLYONCE_DLQ_URL": shop.dlq_url,
        **(env or {}),
    }
    create_function(aws, function, package, variables, timeout)
    mapping = None
    try:
        if source:
            mapping = aws.functions.create_event_source_mapping(
                EventSourceArn=stream, FunctionName=function, StartingPosition="TRIM_HORIZON",
                BatchSize=100, FunctionResponseTypes=["ReportBatchItemFailures"],
            )["UUID"]
            until(
                "the stream's source enabled",
                lambda: aws.functions.get_event_source_mapping(UUID=mapping)["State"] == "Enabled",
            )
        yield Relay(aws, table, function, stream)
    finally:
        if mapping:
            aws.functions.delete_event_source_mapping(UUID=mapping)
        aws.functions.delete_function(FunctionName=function)
        aws.dynamodb.delete_table(TableName=table)
