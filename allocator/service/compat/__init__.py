"""The routes of other id servers, for their clients."""
