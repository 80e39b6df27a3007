"""Command queues: recording, hazards, submission, completion, streams and graph replay."""
