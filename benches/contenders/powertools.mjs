// Powertools for AWS Lambda (TypeScript), as its documentation combines idempotency with batches:
// each record is one idempotent call, under the key that its producer gave it; all at once, which is
// what its processor does. The runtime's loop is below: AWS's own client needs a compiler to install.

import { Agent, request } from "node:http";
import { BatchProcessor, EventType, processPartialResponse } from "@aws-lambda-powertools/batch";
import { IdempotencyConfig, makeIdempotent } from "@aws-lambda-powertools/idempotency";
import { DynamoDBPersistenceLayer } from "@aws-lambda-powertools/idempotency/dynamodb";

const config = new IdempotencyConfig({
  eventKeyJmesPath: 'messageAttributes."idempotency-key".stringValue',
  expiresAfterSeconds: 45 * 24 * 3600,
});
const charge = makeIdempotent(async (record) => JSON.parse(record.body).amount, {
  config,
  persistenceStore: new DynamoDBPersistenceLayer({ tableName: process.env.TABLE }),
});
const processor = new BatchProcessor(EventType.SQS);

const handler = (event, context) => {
  config.registerLambdaContext(context);
  return processPartialResponse(event, charge, processor, { context });
};

const [hostname, port] = process.env.AWS_LAMBDA_RUNTIME_API.split(":");
const agent = new Agent({ keepAlive: true, maxSockets: 1 });

const call = (method, path, body) =>
  new Promise((resolve, reject) => {
    const sent = request({ agent, hostname, port, method, path: `/2018-06-01/runtime/invocation/${path}` }, (answer) => {
      const parts = [];
      answer.on("data", (part) => parts.push(part));
      answer.on("end", () => resolve({ headers: answer.headers, body: Buffer.concat(parts) }));
    });
    sent.on("error", reject);
    if (body !== undefined) sent.setHeader("Content-Length", Buffer.byteLength(body));
    sent.end(body);
  });

for (;;) {
  const { headers, body } = await call("GET", "next");
  const id = headers["lambda-runtime-aws-request-id"];
  const deadline = Number(headers["lambda-runtime-deadline-ms"]);
  const answer = await handler(JSON.parse(body), {
    awsRequestId: id,
    functionName: process.env.AWS_LAMBDA_FUNCTION_NAME,
    getRemainingTimeInMillis: () => deadline - Date.now(),
  });
  await call("POST", `${id}/response`, JSON.stringify(answer));
}
