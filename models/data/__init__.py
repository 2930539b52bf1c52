"""Text to Megatron's indexed datasets, and those to batches."""
