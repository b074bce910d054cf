"""What a call can reach: its objects before the run, what the run changed, and how each is told apart."""
