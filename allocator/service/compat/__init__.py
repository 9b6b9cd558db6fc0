"""Routes for clients that were written for other id servers."""
