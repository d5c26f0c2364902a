"""What trials measured: records, the Pareto front, and what is shown of them."""
