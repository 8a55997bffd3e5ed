"""The records of tasks on a cluster: their histories, and the lists of its visibility. They need no worker."""
