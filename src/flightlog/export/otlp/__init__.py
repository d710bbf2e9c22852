"""OpenTelemetry: a run as traces, metrics and logs, to a server over OTLP/HTTP or to a file.

batches.py      reads a run once, or repeatedly while it runs, and returns batches of
  spans.py      task attempts and spans as OpenTelemetry spans, with the run as their root,
  metrics.py    counters, durations and resource samples
model.py        what a batch holds, and the mapping to the protocol's messages, from which JSON and the binary
                encoding follow
json_file.py    the exporter to a file of JSON lines
exporter.py     the exporter to a server: endpoints, requests and answers, and the checkpoint that keeps
                anything from being sent twice
"""
