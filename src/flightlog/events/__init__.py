"""Every event, declared once: encoder, decoder, columns, JSON Schema and reference page follow from it."""

from flightlog.events.base import SCHEMA_VERSION, Event, kind_of, kinds, streams
from flightlog.events.devices import DeviceMemory
from flightlog.events.jobs import JobAccounted, JobEvent, JobStarted
from flightlog.events.records import ArtifactRecorded, CacheLookup, CostEstimate, CostRates, Failure
from flightlog.events.resources import ResourceRequest, ResourceSample
from flightlog.events.spans import SpanEvent, SpanOpened
from flightlog.events.tasks import (
    TaskCancelled,
    TaskCompleted,
    TaskEnded,
    TaskEvent,
    TaskFailed,
    TaskQueued,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
)
from flightlog.events.user import EventDefined, Metric, UserEvent, define_event, definition_of
from flightlog.events.workers import WorkerEvent, WorkerLaunched, WorkerLost, WorkerReady, WorkerRemoved

__all__ = [
    "SCHEMA_VERSION",
    "ArtifactRecorded",
    "CacheLookup",
    "CostEstimate",
    "CostRates",
    "DeviceMemory",
    "Event",
    "EventDefined",
    "Failure",
    "JobAccounted",
    "JobEvent",
    "JobStarted",
    "Metric",
    "ResourceRequest",
    "ResourceSample",
    "SpanEvent",
    "SpanOpened",
    "TaskCancelled",
    "TaskCompleted",
    "TaskEnded",
    "TaskEvent",
    "TaskFailed",
    "TaskQueued",
    "TaskRetried",
    "TaskStarted",
    "TaskSubmitted",
    "UserEvent",
    "WorkerEvent",
    "WorkerLaunched",
    "WorkerLost",
    "WorkerReady",
    "WorkerRemoved",
    "define_event",
    "definition_of",
    "kind_of",
    "kinds",
    "streams",
]
