variable "name" {
  description = "What everything made here is called, or begins with."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z][A-Za-z0-9-]{0,49}$", var.name))
    error_message = "A letter, then at most 49 letters, digits and hyphens."
  }
}

variable "package" {
  description = "The zip with the worker as `bootstrap`, and jobs.toml beside it; README.md says how it is made."
  type        = string
}

variable "existing_queue_arn" {
  description = "Serve this queue instead of a new one. Its visibility timeout must be at least six times function_timeout, and batching_window more."
  type        = string
  default     = ""
}

variable "existing_table_name" {
  description = "Claim on this table instead of a new one (string key pk, TTL expires_at, index parked)."
  type        = string
  default     = ""
}

variable "existing_outbox_stream_arn" {
  description = "The stream (NEW_IMAGE) of the outbox that the existing table has already. Empty makes the outbox."
  type        = string
  default     = ""

  validation {
    condition     = var.existing_outbox_stream_arn == "" || var.existing_table_name != ""
    error_message = "It is the outbox of an existing table; set existing_table_name, too."
  }
}

variable "enabled" {
  description = "Whether the worker receives from the queue, and the relay from the outbox. Adopt a queue that is in use with false."
  type        = bool
  default     = true
}

variable "fifo" {
  description = "Whether the queue and its dead-letter queue are FIFO. To change it makes new queues; let the old one run empty first."
  type        = bool
  default     = false

  validation {
    condition     = var.existing_queue_arn == "" || var.fifo == endswith(var.existing_queue_arn, ".fifo")
    error_message = "It must say what the existing queue is."
  }
}

variable "function_timeout" {
  description = "Seconds a batch may take. Messages are hidden for six times as long."
  type        = number
  default     = 30

  validation {
    condition     = var.function_timeout >= 1 && var.function_timeout <= 900
    error_message = "1 to 900."
  }
}

variable "batch_size" {
  description = "Most messages in one invocation. More than ten need a batching_window, and no FIFO queue can have them."
  type        = number
  default     = 10

  validation {
    condition     = var.batch_size >= 1 && var.batch_size <= (var.fifo || var.batching_window == 0 ? 10 : 10000)
    error_message = "1 to 10; with a batching_window, up to 10000."
  }
}

variable "batching_window" {
  description = "Seconds that Lambda may wait for a batch to fill. Not for FIFO queues."
  type        = number
  default     = 0

  validation {
    condition     = var.batching_window >= 0 && var.batching_window <= (var.fifo ? 0 : 20)
    error_message = "0 to 20; a FIFO queue has none."
  }
}

variable "concurrency" {
  description = "Jobs that one invocation runs at once."
  type        = number
  default     = 32
}

variable "maximum_concurrency" {
  description = "Most invocations at once, 2 to 1000; 0 sets no limit. Better than reserved concurrency, which throttles what was received already: each throttle spends one of max_receive_count."
  type        = number
  default     = 0

  validation {
    condition     = var.maximum_concurrency == 0 || (var.maximum_concurrency >= 2 && var.maximum_concurrency <= 1000)
    error_message = "2 to 1000, or 0. For one after another, use a FIFO queue with one group."
  }
}

variable "max_receive_count" {
  description = "Receives after which SQS itself gives a message up. Not the retry budget: throttles and waiting for a busy key count too, so keep it above the attempts in jobs.toml."
  type        = number
  default     = 10

  validation {
    condition     = var.max_receive_count >= 5 && var.max_receive_count <= 1000
    error_message = "5 to 1000."
  }
}

variable "namespace" {
  description = "Separates deployments that share one table."
  type        = string
  default     = "default"
}

variable "drill" {
  description = "For a staging deployment of its own, which `onlyonce drill` is to prove: the worker plays crashes, and its namespace is `drill`."
  type        = bool
  default     = false
}

variable "secret_arns" {
  description = "The SSM parameters and Secrets Manager secrets that jobs.toml names, and the KMS keys of your own that encrypt them; the worker may read these and no others."
  type        = list(string)
  default     = []
}

variable "row_table_arns" {
  description = "The DynamoDB tables that row jobs of jobs.toml write to; the worker may write to these and to its own."
  type        = list(string)
  default     = []
}

variable "effect_arns" {
  description = "The functions, queues, topics and event buses that jobs.toml names; the worker may call these and no others."
  type        = list(string)
  default     = []
}

variable "outbox" {
  description = "Whether jobs stage events: makes the table of the outbox, the relay that sends them on, and its alarms."
  type        = bool
  default     = false
}

variable "architecture" {
  description = "What the worker in the package was built for: x86_64 or arm64."
  type        = string
  default     = "x86_64"

  validation {
    condition     = contains(["x86_64", "arm64"], var.architecture)
    error_message = "x86_64 or arm64."
  }
}

variable "memory_size" {
  description = "Megabytes. CPU grows with it."
  type        = number
  default     = 256
}

variable "kms_key_arn" {
  description = "A KMS key of your own that encrypts the queues and tables made here, or the key of an existing queue or table; worker and relay may use it. Empty leaves it to keys that AWS keeps."
  type        = string
  default     = ""
}

variable "log_level" {
  description = "RUST_LOG, for example info or onlyonce=debug."
  type        = string
  default     = "info"
}

variable "log_retention" {
  description = "Days that the logs are kept."
  type        = number
  default     = 30
}

variable "alarm_topic_arn" {
  description = "SNS topic to tell when an alarm goes off."
  type        = string
  default     = ""
}

variable "alarm_age" {
  description = "Seconds that a message may wait before there is an alarm. Above the longest wait between two attempts in jobs.toml."
  type        = number
  default     = 900
}

variable "dashboard" {
  description = "Whether to make the CloudWatch dashboard."
  type        = bool
  default     = true
}

variable "endpoint_url" {
  description = "AWS endpoint the worker speaks to. For local emulators and VPC endpoints; empty on AWS."
  type        = string
  default     = ""
}
