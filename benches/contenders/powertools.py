"""Powertools for AWS Lambda (Python), as its documentation combines idempotency with batches: each
record is one idempotent call, under the key that its producer gave it.

The runtime's loop is below: AWS's own client does the same, and needs a compiler to install.
"""

import http.client
import json
import os
import time

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)

store = DynamoDBPersistenceLayer(table_name=os.environ["TABLE"])
config = IdempotencyConfig(
    event_key_jmespath='messageAttributes."idempotency-key".stringValue',
    expires_after_seconds=45 * 24 * 3600,
)
processor = BatchProcessor(event_type=EventType.SQS)


@idempotent_function(data_keyword_argument="record", config=config, persistence_store=store)
def charge(record: SQSRecord):
    return json.loads(record.body)["amount"]


def one(record: SQSRecord):
    return charge(record=record)


class Context:
    def __init__(self, headers):
        self.aws_request_id = headers["Lambda-Runtime-Aws-Request-Id"]
        self.function_name = os.environ["AWS_LAMBDA_FUNCTION_NAME"]
        self._deadline = int(headers["Lambda-Runtime-Deadline-Ms"])

    def get_remaining_time_in_millis(self):
        return self._deadline - int(time.time() * 1000)


def handler(event, context):
    config.register_lambda_context(context)
    return process_partial_response(event=event, record_handler=one, processor=processor, context=context)


def main():
    api = http.client.HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])
    while True:
        api.request("GET", "/2018-06-01/runtime/invocation/next")
        asked = api.getresponse()
        event = json.loads(asked.read())
        context = Context(asked.headers)
        answer = handler(event, context)
        api.request("POST", f"/2018-06-01/runtime/invocation/{context.aws_request_id}/response", json.dumps(answer))
        api.getresponse().read()


if __name__ == "__main__":
    main()
