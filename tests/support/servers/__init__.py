"""Real database servers, and databases on them."""
