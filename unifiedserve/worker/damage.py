"""Tell of weights that are not what they were."""

#: exit code of a worker that has found other weights than there should be
DAMAGED_WEIGHTS = 75


class DamagedWeightsError(Exception):
    """Signal that the weights in a device's memory are not what they were."""
