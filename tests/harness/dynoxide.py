"""Dynoxide: a DynamoDB that is quick enough to measure on, and for batches of ten thousand."""

import subprocess
import time
import uuid

import boto3
from botocore.config import Config

from .deployment import TABLE
from .emulator import free_port
from .processes import end_group


class Dynoxide:
    def __init__(self, program):
        """Starts `program`; returns once it answers."""
        self.url = f"http://127.0.0.1:{free_port()}"
        self._process = subprocess.Popen(
            [str(program), "--host", "127.0.0.1", "--port", self.url.rsplit(":", 1)[1], "--log", "quiet"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )
        self.client = boto3.client("dynamodb", endpoint_url=self.url, config=Config(retries={"max_attempts": 1}))
        deadline = time.monotonic() + 30
        while True:
            try:
                self.client.list_tables()
                break
            except Exception:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.close()
                    raise
                time.sleep(0.05)

    def table(self, key="pk"):
        """A new table with this partition key; `pk` is this crate's own, with its index."""
        name = f"table-{uuid.uuid4().hex[:10]}"
        simple = {
            "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{"AttributeName": key, "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}],
        }
        self.client.create_table(TableName=name, **(TABLE if key == "pk" else simple))
        return name

    def close(self):
        end_group(self._process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
