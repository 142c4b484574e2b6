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
    Logs       = ["${aws_cloudwatch_log_group.function["worker"].arn}:*"]
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
    Logs           = [for name, group in aws_cloudwatch_log_group.function : "${group.arn}:*" if name == "relay"]
  }

  resources = { worker = local.worker_resources, relay = local.relay_resources }

  assumed_by_lambda = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "lambda.amazonaws.com" }
      Action    = "sts:AssumeRole"
    }]
  })
}

resource "aws_iam_role" "function" {
  for_each = local.functions

  name_prefix        = "${substr(var.name, 0, 30)}-${each.key}-"
  assume_role_policy = local.assumed_by_lambda
}

resource "aws_iam_role_policy" "function" {
  for_each = local.functions

  name = each.key
  role = aws_iam_role.function[each.key].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      for statement in jsondecode(file("${path.module}/../iam/${each.key}.json")).Statement :
      merge(statement, { Resource = local.resources[each.key][statement.Sid] })
      if length(local.resources[each.key][statement.Sid]) > 0
    ]
  })
}
