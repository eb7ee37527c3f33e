"""A checkpoint becomes a bundle. Build machine only: nothing outside this package imports it at start."""
