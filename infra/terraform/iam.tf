# The statements are those of infra/iam; what each may be done to is said here. A statement without
# resources is left out.

locals {
  key_arns = var.kms_key_arn == "" ? [] : [var.kms_key_arn]

  worker_resources = {
    Claims     = [local.table_arn]
    Outbox     = var.outbox ? [local.outbox_arn] : []
    Jobs       = [local.queue_arn]
    Quarantine = [aws_sqs_queue.dead_letters.arn]
    Key        = local.key_arns
    Secrets    = var.secret_arns
    Rows       = var.row_table_arns
    Effects    = var.effect_arns
    Logs       = ["${aws_cloudwatch_log_group.worker.arn}:*"]
  }

  relay_resources = {
    Claims         = [local.table_arn]
    Outbox         = [local.outbox_arn]
    Stream         = [local.stream_arn]
    UniqueMessages = [local.queue_arn]
    Quarantine     = [aws_sqs_queue.dead_letters.arn]
    Key            = local.key_arns
    Secrets        = var.secret_arns
    Rows           = var.row_table_arns
    Effects        = var.effect_arns
    Logs           = [for group in aws_cloudwatch_log_group.relay : "${group.arn}:*"]
  }

  assumed_by_lambda = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "lambda.amazonaws.com" }
      Action    = "sts:AssumeRole"
    }]
  })
}

resource "aws_iam_role" "worker" {
  name_prefix        = "${substr(var.name, 0, 30)}-worker-"
  assume_role_policy = local.assumed_by_lambda
}

resource "aws_iam_role_policy" "worker" {
  name = "worker"
  role = aws_iam_role.worker.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      for statement in jsondecode(file("${path.module}/../iam/worker.json")).Statement :
      merge(statement, { Resource = local.worker_resources[statement.Sid] })
      if length(local.worker_resources[statement.Sid]) > 0
    ]
  })
}

resource "aws_iam_role" "relay" {
  count = var.outbox ? 1 : 0

  name_prefix        = "${substr(var.name, 0, 30)}-relay-"
  assume_role_policy = local.assumed_by_lambda
}

resource "aws_iam_role_policy" "relay" {
  count = var.outbox ? 1 : 0

  name = "relay"
  role = aws_iam_role.relay[0].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      for statement in jsondecode(file("${path.module}/../iam/relay.json")).Statement :
      merge(statement, { Resource = local.relay_resources[statement.Sid] })
      if length(local.relay_resources[statement.Sid]) > 0
    ]
  })
}
