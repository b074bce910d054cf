"""Other ways to average gradients: ``ddp_comm_hooks``."""
