"""Measurements. Run them with `python -m benchmarks NAME`; each prints ratios against raw apsw in the same run."""
