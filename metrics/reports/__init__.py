"""Reports: a summary of the accounting as tables, and tables as text. Computes no figure of its own."""
