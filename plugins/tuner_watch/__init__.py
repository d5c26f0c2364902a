"""A bundle in service on a device: it predicts files as they come, notices drift, and trains while the device is idle.

The commands watch, status and rollback are entry points of the group ``tuner.commands``. Programs find its classes in
`tuner.runtime` too, by the group ``tuner.runtime``.
"""
