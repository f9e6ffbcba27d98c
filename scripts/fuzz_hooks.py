"""Loaded by Schemathesis (scripts/fuzz.sh): how the bodies of tus are sent."""

import schemathesis

schemathesis.serializer.alias("application/offset+octet-stream", "application/octet-stream")
