"""What a build says and stores of a model besides its C: golden vectors, facts, warnings, and lines for people."""
