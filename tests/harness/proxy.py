"""A forwarder in front of an AWS endpoint that counts the calls by their X-Amz-Target."""

import collections

from .forwarder import Forwarder


class CountingProxy(Forwarder):
    def calls(self, service="DynamoDB"):
        """Operation -> number of calls, of one service, since the last `reset`."""
        of_service = self.requests(lambda call: call.target.startswith(service))
        return dict(collections.Counter(call.operation for call in of_service))
