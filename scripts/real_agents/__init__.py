"""The parts of scripts/real-agents."""
