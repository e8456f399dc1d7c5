"""Published throughput: rows as zeroplan's jobs, on the clusters and with the software that their columns say."""
