"""Data: readers, tokenizers and packed batches."""
