"""Brings messages back from a dead-letter queue, as an operator does."""

import time

import botocore.exceptions

from .deployment import arn, until

SKEW_MS = 5_000


def redrive(deployment, matches):
    """Redrives the message that `matches` accepts; returns the way it went.

    With StartMessageMoveTask where the endpoint has it, which moves all there are; else by
    receiving it and sending it again, which gives it a new id and a new time just the same.
    """
    sqs, source = deployment.aws.sqs, arn(deployment.aws.sqs, deployment.dlq_url)
    try:
        sqs.start_message_move_task(
            SourceArn=source,
            # SQS cannot tell where a message came from that a worker has sent there.
            DestinationArn=arn(sqs, deployment.queue_url),
        )
    except botocore.exceptions.ClientError as error:
        if error.response["Error"]["Code"] not in ("InvalidAction", "AWS.SimpleQueueService.UnsupportedOperation"):
            raise
        resend(deployment, deployment.wait_dead(matches))
        return "receive and re-send"
    task = lambda: sqs.list_message_move_tasks(SourceArn=source)["Results"][0]
    ended = until("the move task has ended", lambda: (now := task())["Status"] != "RUNNING" and now)
    assert ended["Status"] == "COMPLETED", ended
    return "StartMessageMoveTask"


def resend(deployment, message):
    """Sends a dead message again, body and attributes as they lie there, the mark included."""
    return deployment.aws.sqs.send_message(
        QueueUrl=deployment.queue_url,
        MessageBody=message["Body"],
        MessageAttributes={
            name: {"DataType": value["DataType"], "StringValue": value["StringValue"]}
            for name, value in message["MessageAttributes"].items()
        },
    )["MessageId"]

def wait_for_skew(*failed):
    """A copy of a message that failed could be this young; only one sent later opens its key."""
    last = max(record["updated_at"] for record in failed)
    until("the skew is over", lambda: time.time() * 1000 > last + SKEW_MS, every=0.1)
