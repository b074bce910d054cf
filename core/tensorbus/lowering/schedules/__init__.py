"""From a fusion group to loop IR: one file a schedule, and one table that chooses."""
