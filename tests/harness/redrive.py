"""Brings messages back from a dead-letter queue, as an operator does."""

import time

import botocore.exceptions

from .deployment import arn, until

SKEW_MS = 5_000


def redrive(deployment, matches):
    """Redrives the dead message that `matches` accepts; returns the way it went.

    With StartMessageMoveTask where the endpoint has it, else by sending it again. Either way it has
    another id than the message that failed, and a later time.
    """
    sqs = deployment.aws.sqs
    message = deployment.wait_dead(matches)
    source = arn(sqs, deployment.dlq_url)
    tasks = lambda: sqs.list_message_move_tasks(SourceArn=source)["Results"]
    try:
        tasks()
    except botocore.exceptions.ClientError as error:
        if error.response["Error"]["Code"] != "InvalidAction":
            raise
        resend(deployment, message)
        return "receive and re-send"
    # AWS gives what it moves a new time. LocalStack leaves it the one it was sent with to the
    # dead-letter queue, so that it has to be a late one.
    resend(deployment, message, deployment.dlq_url)
    # SQS cannot tell where a message came from that a worker has sent there.
    sqs.start_message_move_task(SourceArn=source, DestinationArn=arn(sqs, deployment.queue_url))
    ended = until("the move task has ended", lambda: (now := tasks()[0])["Status"] != "RUNNING" and now)
    assert ended["Status"] == "COMPLETED", ended
    return "StartMessageMoveTask"


def resend(deployment, message, url=None):
    """Sends a dead message again, body and attributes as they lay there, the mark included."""
    return deployment.aws.sqs.send_message(
        QueueUrl=url or deployment.queue_url,
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
