"""The model of a task is chosen from candidates, and ``tuner models`` lists what is on this machine."""
