"""UMQ peers."""
