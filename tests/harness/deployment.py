"""A queue, its dead-letter queue, a claim table and a worker behind a real event source."""

import base64
import hashlib
import io
import json
import time
import uuid
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import boto3
from botocore.config import Config

from . import processes

TABLE = {
    "BillingMode": "PAY_PER_REQUEST",
    "AttributeDefinitions": [
        {"AttributeName": "pk", "AttributeType": "S"},
        {"AttributeName": "parked", "AttributeType": "S"},
        {"AttributeName": "updated_at", "AttributeType": "N"},
    ],
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
    "GlobalSecondaryIndexes": [
        {
            "IndexName": "parked",
            "KeySchema": [
                {"AttributeName": "parked", "KeyType": "HASH"},
                {"AttributeName": "updated_at", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "ALL"},
        }
    ],
}


class Aws:
    """boto3 clients for one endpoint."""

    def __init__(self, endpoint, host="127.0.0.1"):
        self.endpoint = endpoint
        # The same endpoint as a function sees it.
        self.inner_endpoint = endpoint if host == "127.0.0.1" else f"http://{host}:{urlsplit(endpoint).port}"
        config = Config(read_timeout=60, retries={"max_attempts": 3})
        client = lambda service: boto3.client(service, endpoint_url=endpoint, config=config)
        self.sqs, self.dynamodb = client("sqs"), client("dynamodb")
        self.functions, self.logs = client("lambda"), client("logs")
        self.topics, self.events = client("sns"), client("events")
        self.s3, self.stacks, self.alarms = client("s3"), client("cloudformation"), client("cloudwatch")
        self.streams = client("dynamodbstreams")
        self.keys, self.iam = client("kms"), client("iam")

    def invoke(self, function, event):
        """What a function answers to an event."""
        answer = self.functions.invoke(FunctionName=function, Payload=json.dumps(event).encode())
        text = answer["Payload"].read().decode()
        assert "FunctionError" not in answer, text
        return json.loads(text)


def until(what, probe, timeout=45, every=0.05):
    """The first truthy answer of `probe`, for state that no one announces."""
    deadline = time.monotonic() + timeout
    while not (answer := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout} s")
        time.sleep(every)
    return answer


def record_id(job, key, namespace="default"):
    """The identity of a record, made here a second time from its definition."""
    return digest_of("onlyonce/1", namespace, job, key).hexdigest()


def effect_key(job, key, effect, generation):
    """The key that an effect's provider sees, made here a second time from its definition."""
    digest = digest_of("onlyonce/1/effect", record_id(job, key), effect, str(generation)).digest()
    return base64.b32encode(digest[:20]).decode().lower()


def digest_of(*parts):
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(4, "big") + data)
    return digest


def packaged(bootstrap, jobs=None, files=()):
    """The zip that Lambda gets: the binary as `bootstrap`, its jobs file, and (name, text) beside it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        entry = zipfile.ZipInfo("bootstrap")
        entry.external_attr = 0o755 << 16
        archive.writestr(entry, bootstrap.read_bytes(), zipfile.ZIP_DEFLATED)
        if jobs is not None:
            archive.writestr("jobs.toml", jobs)
        for name, text in files:
            archive.writestr(name, text)
    return buffer.getvalue()


@dataclass
class Deployment:
    aws: Aws
    queue_url: str
    dlq_url: str
    table: str
    function: str
    fifo: bool = False
    _dead: list = field(default_factory=list)

    def send(self, body, *, job=None, key=None, group=None, **attributes):
        """Sends `body` (text as it is, else as JSON) and returns its message id."""
        body = body if isinstance(body, str) else json.dumps(body)
        named = {"job": job, "idempotency-key": key, **attributes}
        named = {name: value for name, value in named.items() if value is not None}
        more = {}
        if self.fifo:
            more = {"MessageGroupId": group, "MessageDeduplicationId": uuid.uuid4().hex}
        return self.aws.sqs.send_message(
            QueueUrl=self.queue_url, MessageBody=body, MessageAttributes=strings(named), **more
        )["MessageId"]

    def send_together(self, messages):
        """Sends (job, key, body[, group]) entries in one call, so that they may share a batch."""
        entries = []
        for index, (job, key, body, *group) in enumerate(messages):
            entry = {
                "Id": str(index),
                "MessageBody": body if isinstance(body, str) else json.dumps(body),
                "MessageAttributes": strings({"job": job, "idempotency-key": key}),
            }
            if group:
                entry |= {"MessageGroupId": group[0], "MessageDeduplicationId": uuid.uuid4().hex}
            entries.append(entry)
        answer = self.aws.sqs.send_message_batch(QueueUrl=self.queue_url, Entries=entries)
        assert not answer.get("Failed"), answer

    def record(self, job, key):
        item = self.aws.dynamodb.get_item(
            TableName=self.table, Key={"pk": {"S": record_id(job, key)}}, ConsistentRead=True
        ).get("Item")
        return item and {name: plain(value) for name, value in item.items()}

    def wait_record(self, job, key, status, timeout=45):
        def probe():
            record = self.record(job, key)
            return record if record and record["status"] == status else None

        return until(f"record of {job} {key[:40]} {status}", probe, timeout)

    def wait_drained(self, timeout=45):
        """Until the queue holds nothing, neither waiting nor in flight."""
        names = [
            "ApproximateNumberOfMessages",
            "ApproximateNumberOfMessagesNotVisible",
            "ApproximateNumberOfMessagesDelayed",
        ]

        def probe():
            counts = self.aws.sqs.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=names)
            return all(count == "0" for count in counts["Attributes"].values())

        until(f"{self.queue_url} drained", probe, timeout)

    def wait_dead(self, matches, timeout=45):
        """The message in the dead-letter queue that `matches` accepts."""
        deadline = time.monotonic() + timeout
        while True:
            for message in self._dead:
                if matches(message):
                    return message
            if time.monotonic() > deadline:
                raise AssertionError(f"not in the dead-letter queue within {timeout} s")
            self._receive_dead(wait=2)

    def dead(self, matches):
        """Those in the dead-letter queue now that `matches` accepts."""
        self._receive_dead(wait=0)
        return [message for message in self._dead if matches(message)]

    def kill(self, held):
        """Kills the worker that awaits the answer to a held call, and sees it dead.

        Its process must be on this machine, as it is where an emulator runs functions without Docker.
        """
        assert held.pid, "the sender of the call is not a process of this machine"
        processes.kill(held.pid, of=f"ONLYONCE_STORE=dynamodb://{self.table}")

    def log_lines(self):
        pages = self.aws.logs.get_paginator("filter_log_events").paginate(
            logGroupName=f"/aws/lambda/{self.function}"
        )
        try:
            return [event["message"] for page in pages for event in page["events"]]
        except self.aws.logs.exceptions.ResourceNotFoundException:
            return []  # nothing has run yet

    def _receive_dead(self, wait):
        # Other tests look into the same queue: what one of them takes out stays in sight of all.
        while messages := self.aws.sqs.receive_message(
            QueueUrl=self.dlq_url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=wait,
            MessageAttributeNames=["All"],
            AttributeNames=["All"],
        ).get("Messages", []):
            for message in messages:
                self._dead.append(message)
                self.aws.sqs.delete_message(
                    QueueUrl=self.dlq_url, ReceiptHandle=message["ReceiptHandle"]
                )
            wait = 0


@contextmanager
def deployed(aws, package, *, env=None, endpoint=None, fifo=False, timeout=10, visibility=12,
             max_receives=20, dlq=True, batch=10):
    """Creates a deployment and takes all of it away again."""
    name = f"oo-{uuid.uuid4().hex[:10]}"
    suffix = ".fifo" if fifo else ""
    fifo_queue = {"FifoQueue": "true"} if fifo else {}
    sqs, functions = aws.sqs, aws.functions
    dlq_url = sqs.create_queue(QueueName=f"{name}-dead{suffix}", Attributes=fifo_queue)["QueueUrl"]
    queue_url = sqs.create_queue(
        QueueName=f"{name}{suffix}",
        Attributes={
            **fifo_queue,
            "VisibilityTimeout": str(visibility),
            "RedrivePolicy": json.dumps(
                {"deadLetterTargetArn": arn(sqs, dlq_url), "maxReceiveCount": max_receives}
            ),
        },
    )["QueueUrl"]
    aws.dynamodb.create_table(TableName=name, **TABLE)
    aws.dynamodb.get_waiter("table_exists").wait(
        TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 30}
    )
    aws.dynamodb.update_time_to_live(
        TableName=name,
        TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires_at"},
    )
    variables = {
        "AWS_ENDPOINT_URL": endpoint or aws.inner_endpoint,
        "ONLYONCE_STORE": f"dynamodb://{name}",
        **({"ONLYONCE_DLQ_URL": dlq_url} if dlq else {}),
        **(env or {}),
    }
    create_function(aws, name, package, variables, timeout)
    source = functions.create_event_source_mapping(
        EventSourceArn=arn(sqs, queue_url),
        FunctionName=name,
        BatchSize=batch,
        FunctionResponseTypes=["ReportBatchItemFailures"],
    )["UUID"]
    until(
        "event source enabled",
        lambda: functions.get_event_source_mapping(UUID=source)["State"] == "Enabled",
    )
    try:
        yield Deployment(aws, queue_url, dlq_url, name, name, fifo)
    finally:
        functions.delete_event_source_mapping(UUID=source)
        functions.delete_function(FunctionName=name)
        for url in (queue_url, dlq_url):
            sqs.delete_queue(QueueUrl=url)
        aws.dynamodb.delete_table(TableName=name)


def create_function(aws, name, package, variables, timeout):
    """A function with this package, which has been seen to start."""
    functions = aws.functions
    functions.create_function(
        FunctionName=name,
        Runtime="provided.al2023",
        Handler="bootstrap",
        Role="arn:aws:iam::000000000000:role/worker",
        Code={"ZipFile": package},
        Timeout=timeout,
        MemorySize=256,
        Environment={"Variables": variables},
    )
    functions.get_waiter("function_active_v2").wait(
        FunctionName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )
    # A worker that cannot start would be tried again without end; its reason belongs here.
    assert aws.invoke(name, {"Records": []}) == {"batchItemFailures": []}


def arn(sqs, queue_url):
    attributes = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])
    return attributes["Attributes"]["QueueArn"]


def strings(attributes):
    return {
        name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
    }


def plain(value):
    """A DynamoDB attribute as a Python value."""
    (kind, content), = value.items()
    if kind == "N":
        return int(content) if content.lstrip("-").isdigit() else float(content)
    if kind == "M":
        return {name: plain(inner) for name, inner in content.items()}
    if kind == "L":
        return [plain(inner) for inner in content]
    return content
