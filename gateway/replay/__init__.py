"""Replay: send a growing document or conversation turn by turn through a gateway, and measure what every form costs."""
