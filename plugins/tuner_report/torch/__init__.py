"""What a report shows of the samples, found out in the process that has the task open."""
