# The same as template.yaml, for those who deploy with Terraform.

data "aws_region" "current" {}
data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}

locals {
  region    = data.aws_region.current.region
  partition = data.aws_partition.current.partition
  account   = data.aws_caller_identity.current.account_id

  create_queue  = var.existing_queue_arn == ""
  create_table  = var.existing_table_name == ""
  create_outbox = var.outbox && var.existing_outbox_stream_arn == ""
  suffix        = var.fifo ? ".fifo" : ""
  key           = var.kms_key_arn == "" ? null : var.kms_key_arn

  # Of an ARN: region, account and name are the last three of six parts.
  queue_parts = split(":", "${var.existing_queue_arn}:::::")
  queue_arn   = local.create_queue ? aws_sqs_queue.jobs[0].arn : var.existing_queue_arn
  queue_name  = local.create_queue ? aws_sqs_queue.jobs[0].name : local.queue_parts[5]
  queue_url = (
    local.create_queue ? aws_sqs_queue.jobs[0].url :
    "https://sqs.${local.queue_parts[3]}.${data.aws_partition.current.dns_suffix}/${local.queue_parts[4]}/${local.queue_parts[5]}"
  )

  tables      = "arn:${local.partition}:dynamodb:${local.region}:${local.account}:table"
  table_name  = local.create_table ? aws_dynamodb_table.claims[0].name : var.existing_table_name
  table_arn   = "${local.tables}/${local.table_name}"
  outbox_name = "${local.table_name}-outbox"
  outbox_arn  = "${local.tables}/${local.outbox_name}"
  stream_arn  = local.create_outbox ? one(aws_dynamodb_table.outbox[*].stream_arn) : var.existing_outbox_stream_arn
}

resource "aws_sqs_queue" "jobs" {
  count = local.create_queue ? 1 : 0

  name       = "${var.name}-jobs${local.suffix}"
  fifo_queue = var.fifo
  # AWS asks for six times the function's timeout and the window: a throttled batch is retried by
  # the poller inside that time, and its messages must not come back meanwhile.
  visibility_timeout_seconds = 6 * var.function_timeout + var.batching_window
  # An outage of the worker loses nothing for a week. Not longer: a message that SQS itself moves
  # to the dead-letter queue keeps its age, and must be there for a week at the least.
  message_retention_seconds = 604800
  kms_master_key_id         = local.key
  sqs_managed_sse_enabled   = local.key == null ? true : null
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letters.arn
    maxReceiveCount     = var.max_receive_count
  })
}

# Holds both what SQS gave up on and what the worker quarantined, so it exists for an existing
# queue too.
resource "aws_sqs_queue" "dead_letters" {
  name = "${var.name}-dead${local.suffix}"
  # Of the same type as the queue: SQS moves messages to no other.
  fifo_queue = var.fifo
  # The longest that SQS offers.
  message_retention_seconds = 1209600
  kms_master_key_id         = local.key
  sqs_managed_sse_enabled   = local.key == null ? true : null
}

resource "aws_dynamodb_table" "claims" {
  count = local.create_table ? 1 : 0

  name         = var.name
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "pk"
  # Without its records every redelivery runs again.
  deletion_protection_enabled = true

  attribute {
    name = "pk"
    type = "S"
  }

  attribute {
    name = "parked"
    type = "S"
  }

  attribute {
    name = "updated_at"
    type = "N"
  }

  # Sparse: only records that wait, failed or need a decision carry `parked`.
  global_secondary_index {
    name            = "parked"
    hash_key        = "parked"
    range_key       = "updated_at"
    projection_type = "ALL"
  }

  ttl {
    attribute_name = "expires_at"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }

  server_side_encryption {
    enabled     = true
    kms_key_arn = local.key
  }
}

# The worker finds it by its name, which is the claims' and "-outbox".
resource "aws_dynamodb_table" "outbox" {
  count = local.create_outbox ? 1 : 0

  name             = local.outbox_name
  billing_mode     = "PAY_PER_REQUEST"
  hash_key         = "order_key"
  range_key        = "event_id"
  stream_enabled   = true
  stream_view_type = "NEW_IMAGE"
  # Its rows are events that were committed and not sent yet.
  deletion_protection_enabled = true

  attribute {
    name = "order_key"
    type = "S"
  }

  attribute {
    name = "event_id"
    type = "S"
  }

  # Of unique messages only: an event stays until it was sent.
  ttl {
    attribute_name = "expires_at"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }

  server_side_encryption {
    enabled     = true
    kms_key_arn = local.key
  }
}
