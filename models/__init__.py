"""What a model and a bundle are: shapes, graph contract, bundle format, errors. Standard library only."""
