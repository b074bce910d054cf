"""The backward program of a captured function: the joint graph, cut by what is cheapest to keep."""
