#!/bin/sh
# What the worker of compose.yaml works on. LocalStack runs it when it is ready.
set -eu
awslocal sqs create-queue --queue-name dead
awslocal sqs create-queue --queue-name jobs --attributes '{"VisibilityTimeout": "30", "RedrivePolicy":
  "{\"deadLetterTargetArn\": \"arn:aws:sqs:us-east-1:000000000000:dead\", \"maxReceiveCount\": \"10\"}"}'
awslocal dynamodb create-table --table-name onlyonce --billing-mode PAY_PER_REQUEST \
  --attribute-definitions AttributeName=pk,AttributeType=S AttributeName=parked,AttributeType=S \
    AttributeName=updated_at,AttributeType=N \
  --key-schema AttributeName=pk,KeyType=HASH \
  --global-secondary-indexes '[{"IndexName": "parked", "Projection": {"ProjectionType": "ALL"}, "KeySchema":
    [{"AttributeName": "parked", "KeyType": "HASH"}, {"AttributeName": "updated_at", "KeyType": "RANGE"}]}]'
awslocal dynamodb update-time-to-live --table-name onlyonce \
  --time-to-live-specification Enabled=true,AttributeName=expires_at
