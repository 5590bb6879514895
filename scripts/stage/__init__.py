"""Makes the upstream pull request out of the series."""
