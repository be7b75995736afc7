"""What the documentation says of the files in results/, made of them: `python -m tests.results` writes it anew."""
