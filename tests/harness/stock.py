"""A table of goods, whose number jobs change."""


class Stock:
    """Exists within a `with`."""

    def __init__(self, aws, table):
        self.table = table
        self._dynamodb = aws.dynamodb

    def put(self, sku, available):
        self._dynamodb.put_item(
            TableName=self.table, Item={"sku": {"S": sku}, "available": {"N": str(available)}}
        )

    def available(self, sku):
        found = self._dynamodb.get_item(TableName=self.table, Key={"sku": {"S": sku}}, ConsistentRead=True)
        return int(found["Item"]["available"]["N"])

    def __enter__(self):
        self._dynamodb.create_table(
            TableName=self.table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "sku", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "sku", "KeyType": "HASH"}],
        )
        self._dynamodb.get_waiter("table_exists").wait(
            TableName=self.table, WaiterConfig={"Delay": 1, "MaxAttempts": 30}
        )
        return self

    def __exit__(self, *_):
        self._dynamodb.delete_table(TableName=self.table)
