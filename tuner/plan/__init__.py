"""A trial as frozen data: what it trains, on which samples, from which features, and how."""
