"""Replay AgentDojo without a model, through the host: ``python -m`` this package."""
