output "queue_url" {
  description = "Send jobs here, with the attributes idempotency-key and job."
  value       = local.queue_url
}

output "dead_letters_url" {
  description = "What could not be done, with the reason in the attribute onlyonce-quarantine."
  value       = aws_sqs_queue.dead_letters.url
}

output "table_name" {
  description = "The claims."
  value       = local.table_name
}

output "worker_arn" {
  description = "The worker."
  value       = aws_lambda_function.function["worker"].arn
}

output "outbox_table_name" {
  description = "Events that are to be sent on, and unique messages."
  value       = var.outbox ? local.outbox_name : null
}

output "relay_arn" {
  description = "What sends them on."
  value       = var.outbox ? aws_lambda_function.function["relay"].arn : null
}

output "dashboard_url" {
  description = "How it is."
  value       = var.dashboard ? "https://${local.region}.console.aws.amazon.com/cloudwatch/home?region=${local.region}#dashboards/dashboard/${var.name}" : null
}
