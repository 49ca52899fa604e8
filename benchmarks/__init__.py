"""What Packhorse costs and saves, measured beside what people use instead: ``python -m benchmarks`` (see README.md)."""
