"""Fits a model to shards that come over HTTP: fit_shards.py DELAY."""

import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
from sklearn.linear_model import SGDClassifier

import flightlog

delay_s = float(sys.argv[1])
server = subprocess.Popen(
    [sys.executable, str(Path(__file__).with_name("slow_server.py"))], stdout=subprocess.PIPE, text=True
)
try:
    port = int(server.stdout.readline())
    model = SGDClassifier()
    rng = np.random.default_rng(1)
    for epoch in range(3):
        with flightlog.span("epoch", epoch=epoch):
            for shard in range(8):
                with flightlog.span("fetch_shard", shard=shard):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/{delay_s}/200000").read()
                with flightlog.span("partial_fit", shard=shard):
                    data = rng.standard_normal((2000, 20))
                    labels = data[:, 0] > 0
                    until = time.thread_time() + 0.16
                    while time.thread_time() < until:
                        model.partial_fit(data, labels, classes=[False, True])
finally:
    server.terminate()
    server.wait()
