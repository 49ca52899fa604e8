"""The settings schema, its loader, and ready-made profiles."""
