"""Web services: the review app where people rule on cases, and endpoints behind which a trained team answers."""
