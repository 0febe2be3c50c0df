"""What is asked and what counts as right: generator, exact oracle and verifier of every family."""
