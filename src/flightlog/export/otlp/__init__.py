"""OpenTelemetry's protocol, OTLP."""
