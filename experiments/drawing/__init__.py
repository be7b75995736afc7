"""Pictures drawn from arrays; nothing here reads a run."""
