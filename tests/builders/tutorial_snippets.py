"""The snippets of the beginner's tutorial on telemetry, steps 2 to 5, as printed there."""

READ_LINES = """
import json

# Read task events line by line
with open(".flightlog/runs/run-.../tasks.jsonl") as f:
    for line in f:
        event = json.loads(line)
        print(f"{event['timestamp']} | {event['event']} | {event.get('task', '')}")
"""

READ_WITH_PANDAS = """
import pandas as pd

# Load all task events into a DataFrame
tasks = pd.read_json(".flightlog/runs/run-.../tasks.jsonl", lines=True)

# Filter to completions and compute statistics
completed = tasks[tasks["event"] == "task_completed"]
print(f"Total tasks: {len(completed)}")
print(f"Average duration: {completed['duration_s'].mean():.2f}s")
print(f"Slowest task: {completed['duration_s'].max():.2f}s")
print(f"Fastest task: {completed['duration_s'].min():.2f}s")
"""

SLOWEST = """
# Find the 5 slowest tasks
slowest = completed.nlargest(5, "duration_s")[["task", "duration_s"]]
print(slowest)
"""

IDLE = """
resources = pd.read_json(".flightlog/runs/run-.../resources.jsonl", lines=True)
print(f"Average CPU utilization: {resources['cpu_percent'].mean():.1f}%")
"""

CACHING = """
cache = pd.read_json(".flightlog/runs/run-.../cache.jsonl", lines=True)
hit_rate = cache[cache["result"] == "hit"].shape[0] / len(cache) * 100
print(f"Cache hit rate: {hit_rate:.1f}%")
"""

TREND = """
import os
import json

# Load metadata from all runs
runs_dir = ".flightlog/runs"
runs = []
for run_name in sorted(os.listdir(runs_dir)):
    run_meta = os.path.join(runs_dir, run_name, "run.json")
    if os.path.exists(run_meta):
        with open(run_meta) as f:
            runs.append(json.load(f))

# Plot duration over time (if matplotlib available)
for r in runs:
    print(f"{r['start_time']}: {r['duration_s']:.1f}s ({r['tasks_completed']} tasks)")
"""
