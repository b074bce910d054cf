"""The Tensor cell, the leaf that gradients gather in, and the modes that say whether history is recorded."""
