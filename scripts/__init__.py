"""What `make` runs: each module is one job, started as `python -m scripts.<name>`."""
