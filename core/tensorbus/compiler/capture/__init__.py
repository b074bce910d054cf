"""Runs a function on lazy values: takes its ops, sees what else it does, and says where the graph breaks."""
