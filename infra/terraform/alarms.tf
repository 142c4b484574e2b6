locals {
  # What an alarm does not say itself: three of the last five minutes had some.
  alarm_defaults = {
    namespace   = "onlyonce"
    dimensions  = { Service = var.name }
    statistic   = "Sum"
    period      = 60
    evaluations = 5
    points      = 3
    threshold   = 0
    missing     = "notBreaching"
  }

  alarms = {
    dead-letters = {
      description = "A job ended in the dead-letter queue. Its onlyonce-quarantine attribute says why."
      namespace   = "AWS/SQS"
      metric      = "ApproximateNumberOfMessagesVisible"
      dimensions  = { QueueName = aws_sqs_queue.dead_letters.name }
      statistic   = "Maximum"
      evaluations = 1
      points      = null
    }

    queue-age = {
      description = "A message has waited longer than alarm_age. The worker does not run, cannot keep up, or keeps failing: its log says which."
      namespace   = "AWS/SQS"
      metric      = "ApproximateAgeOfOldestMessage"
      dimensions  = { QueueName = local.queue_name }
      statistic   = "Maximum"
      points      = null
      threshold   = var.alarm_age
    }

    unknown = {
      description = "An effect may have happened, and nobody but a person can find out: onlyonce list unknown."
      metric      = "Unknown"
      evaluations = 1
      points      = null
    }

    lost-lease = {
      description = "Jobs keep losing their claims: they take longer than the queue hides their messages, or workers stand still. Nothing is done twice by it, but much in vain."
      metric      = "LostLease"
      period      = 300
      evaluations = 3
      points      = 2
    }

    store-error = {
      description = "The store keeps failing the worker, and jobs wait. The log names the error."
      metric      = "StoreError"
    }

    worker-errors = {
      description = "The worker's invocations keep failing: it cannot start, or runs out of time or memory. Failures of jobs are not errors."
      namespace   = "AWS/Lambda"
      metric      = "Errors"
      dimensions  = { FunctionName = "${var.name}-worker" }
    }

    worker-throttles = {
      description = "Lambda keeps refusing to run the worker. Each refusal spends one of a message's receives; set maximum_concurrency below what the account has left."
      namespace   = "AWS/Lambda"
      metric      = "Throttles"
      dimensions  = { FunctionName = "${var.name}-worker" }
    }

    table-throttles = {
      description = "DynamoDB keeps throttling claims, and jobs wait. A hot key, or a limit of the table or the account."
      namespace   = "AWS/DynamoDB"
      metric      = "WriteThrottleEvents"
      dimensions  = { TableName = local.table_name }
    }
  }

  outbox_alarms = {
    outbox-age = {
      description = "An event has waited in the outbox for five minutes, or nobody has looked. The relay's log says what holds it up."
      metric      = "${var.name}-outbox-oldest"
      dimensions  = {}
      statistic   = "Maximum"
      points      = null
      threshold   = 300
      missing     = "breaching"
    }

    relay-late = {
      description = "The relay is more than a minute behind the outbox's stream. Its log says what holds it up."
      namespace   = "AWS/Lambda"
      metric      = "IteratorAge"
      dimensions  = { FunctionName = "${var.name}-relay" }
      statistic   = "Maximum"
      points      = null
      threshold   = 60000
    }

    relay-errors = {
      description = "The relay's invocations keep failing. One now and then does no harm, its events come again."
      namespace   = "AWS/Lambda"
      metric      = "Errors"
      dimensions  = { FunctionName = "${var.name}-relay" }
    }

    outbox-throttles = {
      description = "DynamoDB keeps throttling the outbox, and what commits with it fails. One order key takes at most 1000 writes a second."
      namespace   = "AWS/DynamoDB"
      metric      = "WriteThrottleEvents"
      dimensions  = { TableName = local.outbox_name }
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "alarm" {
  for_each = merge(
    { for name, alarm in local.alarms : name => merge(local.alarm_defaults, alarm) },
    { for name, alarm in local.outbox_alarms : name => merge(local.alarm_defaults, alarm) if var.outbox },
  )

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.description
  namespace           = each.value.namespace
  metric_name         = each.value.metric
  dimensions          = each.value.dimensions
  statistic           = each.value.statistic
  period              = each.value.period
  evaluation_periods  = each.value.evaluations
  datapoints_to_alarm = each.value.points
  threshold           = each.value.threshold
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = each.value.missing
  # The relay of a deployment that is not enabled says nothing, and is not meant to.
  actions_enabled = each.value.missing == "notBreaching" || var.enabled
  alarm_actions   = var.alarm_topic_arn == "" ? [] : [var.alarm_topic_arn]
}
