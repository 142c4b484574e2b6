"""What it would cost, computed: prices of us-east-1, on demand, without a free tier."""

from .contenders import DURABLE, HAND, HAND_ONE, OURS, PYTHON, TYPESCRIPT

# Dollars a million. AWS's price pages, as noted in 2026.
WRITE_UNITS, READ_UNITS = 0.625, 0.125
SQS_REQUESTS, LAMBDA_REQUESTS = 0.40, 0.20
GB_SECOND = 0.0000166667  # x86
# Of Lambda durable functions, by aws.amazon.com/lambda/pricing as others have quoted it:
# github.com/api-evangelist/aws-lambda, plans/aws-lambda-plans-pricing.yml (read 2026-09-20) has the
# operations; the two others are from a second public note of 2026 on the same page.
DURABLE_OPERATIONS, DURABLE_GB_WRITTEN, DURABLE_GB_MONTH = 8.00, 0.25, 0.15
DURABLE_SOURCE = "aws.amazon.com/lambda/pricing, as quoted by github.com/api-evangelist/aws-lambda on 2026-09-20"

MEMORY_MB = 256
FULL_CORE_MB = 1769  # Lambda gives one core at this size, and less in proportion
BATCH = 10
MONTHS = (10**6, 10**9, 10**11)

FORMULA = f"""For a million fresh messages of 1 KB in batches of {BATCH}, at {MEMORY_MB} MB:

- SQS: 1 + 2/{BATCH} requests a message (sent alone, received and deleted by the batch), the same for all, at ${SQS_REQUESTS}.
- Lambda's requests: 1/{BATCH} a message, at ${LAMBDA_REQUESTS}.
- Lambda's time: the wall time of a batch as measured with 5 ms of store latency, its processor time stretched by
  {FULL_CORE_MB}/{MEMORY_MB}, since Lambda gives a core's share by memory: (wall + cpu × ({FULL_CORE_MB}/{MEMORY_MB} - 1)) × {MEMORY_MB}/1024 GB
  × ${GB_SECOND}.
- DynamoDB: the write and read units that were counted, at ${WRITE_UNITS} and ${READ_UNITS} a million.
- Durable functions: the least that a message as one step of a batch's execution can cost: 1 + 1/{BATCH} operations at
  ${DURABLE_OPERATIONS} a million, its 1 KB written at ${DURABLE_GB_WRITTEN} a GB and kept 14 days at ${DURABLE_GB_MONTH} a GB-month, and SQS and Lambda's requests as
  above; no Lambda time at all is counted against it. Prices: {DURABLE_SOURCE}; look them up before you rely on them."""


def per_million(median):
    """Contender -> dollars a million messages by part. `median` answers a sample's median."""
    shared = {"SQS": SQS_REQUESTS * (1 + 2 / BATCH), "Lambda requests": LAMBDA_REQUESTS / BATCH}
    table = {}
    for contender in (OURS, HAND, HAND_ONE, TYPESCRIPT, PYTHON):
        cpu = median("cpu", "cpu_ms", contender, BATCH, "fresh")
        wall = median("latency", "wall_ms", contender, BATCH, "fresh")
        if cpu is None or wall is None:
            continue
        seconds = (wall / BATCH + cpu * (FULL_CORE_MB / MEMORY_MB - 1)) / 1000  # a message
        units = [median("traffic", unit, contender, BATCH, "fresh") for unit in ("write_units", "read_units")]
        table[contender] = {
            **shared,
            "Lambda time": seconds * MEMORY_MB / 1024 * GB_SECOND * 1e6,
            "DynamoDB": units[0] * WRITE_UNITS + units[1] * READ_UNITS,
        }
    gigabytes = 1e6 / 1024**2
    table[DURABLE] = {
        **shared,
        "operations": DURABLE_OPERATIONS * (1 + 1 / BATCH),
        "data": gigabytes * (DURABLE_GB_WRITTEN + DURABLE_GB_MONTH * 14 / 30),
    }
    return table
