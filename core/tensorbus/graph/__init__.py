"""Programs as data: ops in static single assignment."""
