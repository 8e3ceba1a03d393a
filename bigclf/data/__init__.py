"""Data on disk: shards, what is known of them, and how other formats become shards."""
