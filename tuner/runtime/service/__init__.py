"""The service around a bundle: answers, watches for drift, keeps samples, trains."""
