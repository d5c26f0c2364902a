"""Commands about bundles, models in service, and the feature store."""
