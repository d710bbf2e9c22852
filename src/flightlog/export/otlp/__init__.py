"""OpenTelemetry out: a run as traces, metrics and logs, to a server over OTLP/HTTP or to a file.

reading.py                       goes through a run once, or again and again while it lives: batches of
  lives.py  spans.py             what happened: attempts of tasks and spans as spans, the run as their root
  counters.py  gauges.py         how many, how long, and what the machines did
  logs.py                        failures, lost workers and what users noted
model.py                         what all of these give, whatever the encoding
json_form.py  json_file.py       the JSON encoding, which needs no library
protobuf.py                      the binary encoding
servers.py  sending.py           where to, and one request with its answer
sent.py                          what a server has taken, kept beside the run, so that nothing is sent twice
exporter.py                      all of it together
"""
