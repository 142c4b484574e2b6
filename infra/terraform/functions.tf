locals {
  functions = toset(var.outbox ? ["worker", "relay"] : ["worker"])

  environment = merge(
    {
      ONLYONCE_STORE       = "dynamodb://${local.table_name}"
      ONLYONCE_DLQ_URL     = aws_sqs_queue.dead_letters.url
      ONLYONCE_JOBS        = "jobs.toml"
      ONLYONCE_NAMESPACE   = var.drill ? "drill" : var.namespace
      ONLYONCE_CONCURRENCY = tostring(var.concurrency)
      # Worker and relay count as one service: they settle the same records, for the same people.
      ONLYONCE_SERVICE = var.name
      RUST_LOG         = var.log_level
    },
    var.drill ? { ONLYONCE_DRILL = "1" } : {},
    var.endpoint_url == "" ? {} : { AWS_ENDPOINT_URL = var.endpoint_url },
  )
}

# Made here and not by Lambda, which would keep it for ever. The metric of the outbox's age needs the
# relay's before the first line is in it.
resource "aws_cloudwatch_log_group" "function" {
  for_each = local.functions

  name              = "/aws/lambda/${var.name}-${each.key}"
  retention_in_days = var.log_retention
}

# The same program: in the relay, the job that has an event's name sends it on.
resource "aws_lambda_function" "function" {
  for_each = local.functions

  function_name    = "${var.name}-${each.key}"
  role             = aws_iam_role.function[each.key].arn
  filename         = var.package
  source_code_hash = filebase64sha256(var.package)
  handler          = "bootstrap"
  runtime          = "provided.al2023"
  architectures    = [var.architecture]
  timeout          = var.function_timeout
  memory_size      = var.memory_size

  environment {
    variables = merge(local.environment, each.key == "worker" ? {} : {
      # Where unique messages go.
      ONLYONCE_QUEUE_URL = local.queue_url
      # What a sweep has found is said at every level: an alarm is made of it.
      RUST_LOG = "${var.log_level},onlyonce::relay::sweep=info"
    })
  }

  logging_config {
    log_format = "Text"
    log_group  = aws_cloudwatch_log_group.function[each.key].name
  }

  # Lambda asks whether the role may receive.
  depends_on = [aws_iam_role_policy.function]
}

resource "aws_lambda_event_source_mapping" "jobs" {
  event_source_arn                   = local.queue_arn
  function_name                      = aws_lambda_function.function["worker"].arn
  enabled                            = var.enabled
  batch_size                         = var.batch_size
  maximum_batching_window_in_seconds = var.batching_window == 0 ? null : var.batching_window
  function_response_types            = ["ReportBatchItemFailures"]

  dynamic "scaling_config" {
    for_each = var.maximum_concurrency == 0 ? [] : [var.maximum_concurrency]

    content {
      maximum_concurrency = scaling_config.value
    }
  }
}

resource "aws_lambda_event_source_mapping" "committed" {
  count = var.outbox ? 1 : 0

  event_source_arn        = local.stream_arn
  function_name           = aws_lambda_function.function["relay"].arn
  enabled                 = var.enabled
  starting_position       = "TRIM_HORIZON"
  batch_size              = 100
  function_response_types = ["ReportBatchItemFailures"]
  # More batches of a shard at once keep the order of one item's changes only: each event is an
  # item of its own, and those of one order key would overtake each other.
  parallelization_factor = 1
  # The relay names the first event that must come again; halves of a batch would only be more
  # invocations.
  bisect_batch_on_function_error = false
  # Until the record expires, after a day: an event that was given up earlier would be overtaken by
  # those behind it.
  maximum_retry_attempts        = -1
  maximum_record_age_in_seconds = -1
}

resource "aws_cloudwatch_event_rule" "sweep" {
  count = var.outbox ? 1 : 0

  name                = "${var.name}-sweep"
  description         = "Sends on what the stream of the outbox has missed."
  schedule_expression = "rate(1 minute)"
  state               = var.enabled ? "ENABLED" : "DISABLED"
}

resource "aws_cloudwatch_event_target" "sweep" {
  count = var.outbox ? 1 : 0

  rule  = aws_cloudwatch_event_rule.sweep[0].name
  arn   = aws_lambda_function.function["relay"].arn
  input = jsonencode({ onlyonce = "sweep" })
}

resource "aws_lambda_permission" "sweep" {
  count = var.outbox ? 1 : 0

  action        = "lambda:InvokeFunction"
  function_name = aws_lambda_function.function["relay"].function_name
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.sweep[0].arn
}

resource "aws_cloudwatch_log_metric_filter" "outbox_age" {
  count = var.outbox ? 1 : 0

  name           = "${var.name}-outbox-oldest"
  log_group_name = aws_cloudwatch_log_group.function["relay"].name
  pattern        = "{ $.message = \"outbox swept\" }"

  metric_transformation {
    namespace = "onlyonce"
    name      = "${var.name}-outbox-oldest"
    value     = "$.oldest_s"
    unit      = "Seconds"
  }
}
