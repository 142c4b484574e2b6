locals {
  widgets = concat(
    [
      {
        title = "Queue"
        metrics = [
          ["AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", local.queue_name, { stat = "Maximum", label = "waiting" }],
          [".", "ApproximateNumberOfMessagesNotVisible", ".", ".", { stat = "Maximum", label = "in flight" }],
          [".", "ApproximateAgeOfOldestMessage", ".", ".", { stat = "Maximum", label = "oldest, s", yAxis = "right" }],
        ]
      },
      {
        title = "Dead letters"
        metrics = [
          ["AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", aws_sqs_queue.dead_letters.name, { stat = "Maximum", label = "there" }],
          [{ expression = "SEARCH('{onlyonce,Service,Cause} MetricName=\"Quarantined\" Service=\"${var.name}\"', 'Sum', 60)", id = "causes", label = "" }],
        ]
      },
      {
        title = "Outcomes"
        metrics = [
          ["onlyonce", "Claimed", "Service", var.name, { stat = "Sum" }],
          [".", "Completed", ".", ".", { stat = "Sum" }],
          [".", "Replayed", ".", ".", { stat = "Sum" }],
          [".", "Busy", ".", ".", { stat = "Sum" }],
          [".", "Retried", ".", ".", { stat = "Sum" }],
        ]
      },
      {
        title = "To be looked at"
        metrics = [
          ["onlyonce", "Failed", "Service", var.name, { stat = "Sum" }],
          [".", "Unknown", ".", ".", { stat = "Sum" }],
          [".", "Quarantined", ".", ".", { stat = "Sum" }],
          [".", "LostLease", ".", ".", { stat = "Sum" }],
          [".", "StoreError", ".", ".", { stat = "Sum" }],
        ]
      },
      {
        title = "Worker"
        metrics = [
          ["AWS/Lambda", "Invocations", "FunctionName", "${var.name}-worker", { stat = "Sum" }],
          [".", "Errors", ".", ".", { stat = "Sum" }],
          [".", "Throttles", ".", ".", { stat = "Sum" }],
          [".", "ConcurrentExecutions", ".", ".", { stat = "Maximum" }],
        ]
      },
      {
        title = "Worker, ms a batch"
        metrics = [
          ["AWS/Lambda", "Duration", "FunctionName", "${var.name}-worker", { stat = "p50" }],
          [".", "Duration", ".", ".", { stat = "p99" }],
          [".", "Duration", ".", ".", { stat = "Maximum" }],
        ]
      },
      {
        title = "Effects and store, ms"
        metrics = [
          ["onlyonce", "EffectLatency", "Service", var.name, { stat = "p50", label = "effect p50" }],
          [".", "EffectLatency", ".", ".", { stat = "p99", label = "effect p99" }],
          [".", "StoreLatency", ".", ".", { stat = "p50", label = "store p50" }],
          [".", "StoreLatency", ".", ".", { stat = "p99", label = "store p99" }],
        ]
      },
      {
        title = "Sent to done, ms"
        metrics = [
          ["onlyonce", "Age", "Service", var.name, { stat = "p50", label = "age p50" }],
          [".", "Age", ".", ".", { stat = "p99", label = "age p99" }],
        ]
      },
      {
        title = "Claims"
        metrics = [
          ["AWS/DynamoDB", "ConsumedWriteCapacityUnits", "TableName", local.table_name, { stat = "Sum" }],
          [".", "ConsumedReadCapacityUnits", ".", ".", { stat = "Sum" }],
          [".", "WriteThrottleEvents", ".", ".", { stat = "Sum", yAxis = "right" }],
          [".", "ReadThrottleEvents", ".", ".", { stat = "Sum", yAxis = "right" }],
          ["AWS/DynamoDB", "WriteThrottleEvents", "TableName", local.table_name, "GlobalSecondaryIndexName", "parked", { stat = "Sum", label = "index throttled", yAxis = "right" }],
        ]
      },
    ],
    [for widget in local.outbox_widgets : widget if var.outbox],
  )

  outbox_widgets = [
    {
      title = "Relay"
      metrics = [
        ["AWS/Lambda", "Invocations", "FunctionName", "${var.name}-relay", { stat = "Sum" }],
        [".", "Errors", ".", ".", { stat = "Sum" }],
        [".", "Throttles", ".", ".", { stat = "Sum" }],
        [".", "ConcurrentExecutions", ".", ".", { stat = "Maximum" }],
      ]
    },
    {
      title = "Relay, ms behind; oldest event, s"
      metrics = [
        ["AWS/Lambda", "IteratorAge", "FunctionName", "${var.name}-relay", { stat = "Maximum" }],
        ["onlyonce", "${var.name}-outbox-oldest", { stat = "Maximum", yAxis = "right" }],
      ]
    },
    {
      title = "Outbox"
      metrics = [
        ["AWS/DynamoDB", "ConsumedWriteCapacityUnits", "TableName", local.outbox_name, { stat = "Sum" }],
        [".", "ConsumedReadCapacityUnits", ".", ".", { stat = "Sum" }],
        [".", "WriteThrottleEvents", ".", ".", { stat = "Sum", yAxis = "right" }],
        [".", "ReadThrottleEvents", ".", ".", { stat = "Sum", yAxis = "right" }],
      ]
    },
  ]
}

resource "aws_cloudwatch_dashboard" "page" {
  count = var.dashboard ? 1 : 0

  dashboard_name = var.name
  dashboard_body = jsonencode({
    widgets = concat(
      [{
        type   = "alarm"
        width  = 24
        height = 3
        properties = {
          title  = "Alarms"
          alarms = [for alarm in aws_cloudwatch_metric_alarm.alarm : alarm.arn]
        }
      }],
      [for widget in local.widgets : {
        type       = "metric"
        width      = 12
        height     = 6
        properties = merge(widget, { region = local.region, period = 60 })
      }],
    )
  })
}
