"""From a graph to fusion groups: which values get a buffer, and which ops share a kernel."""
