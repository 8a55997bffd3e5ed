"""For tests of ours and of users: disks that fail on purpose."""
