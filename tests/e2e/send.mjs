// A producer without Rust: reads one JSON document {queueUrl, body, attributes} from stdin and
// sends it as any Node program would. Prints the message id.
import { text } from "node:stream/consumers";
import { SQSClient, SendMessageCommand } from "@aws-sdk/client-sqs";

const { queueUrl, body, attributes } = JSON.parse(await text(process.stdin));
// An emulator's queue URL may name a host that only its own DNS knows: AWS_ENDPOINT_URL decides.
const client = new SQSClient({ useQueueUrlAsEndpoint: false });
const { MessageId } = await client.send(
  new SendMessageCommand({
    QueueUrl: queueUrl,
    MessageBody: body,
    MessageAttributes: Object.fromEntries(
      Object.entries(attributes).map(([name, value]) => [
        name,
        { DataType: "String", StringValue: value },
      ]),
    ),
  }),
);
console.log(MessageId);
