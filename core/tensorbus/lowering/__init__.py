"""From a graph to loop nests, and to source in the language of a device."""
